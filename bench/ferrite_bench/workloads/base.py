"""The words a workload is written in: sizes, what a server must offer, cases, charts, the experiment itself.

A workload is one file beside this one that ends in `EXPERIMENT = Experiment(...)`. It describes; run.py does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ferrite_bench.terms import Needs, Size

if TYPE_CHECKING:
    from ferrite_bench.session import Session


@dataclass(frozen=True)
class Data:
    """What stands in the tables before the first case. Setups with equal names share it: the server restarts on it."""

    name: str
    build: Callable[[Session], None]
    disk_mb: int
    """What one engine needs at most."""
    seconds: float
    """Estimate of the time to build it."""


@dataclass(frozen=True)
class Case:
    """One point of an experiment, run on every contestant in turn."""

    name: str
    run: Callable[[Session], None]
    seconds: float
    series: str = ""
    """Which line of a curve it belongs to."""
    x: float | None = None
    """Where on that line."""
    ceiling: bool = True
    """Whether the ceiling takes part, if it takes part in the experiment at all."""


@dataclass(frozen=True)
class Setup:
    """Cases that share a server and its data."""

    name: str
    needs: Needs
    data: Data
    cases: tuple[Case, ...]
    rounds: int | None = None
    """Overrides the size's number of rounds."""


@dataclass(frozen=True)
class Panel:
    """One strip of a timeline."""

    metric: str
    label: str
    unit: str = ""
    log: bool = False


@dataclass(frozen=True)
class Timeline:
    """Measures over time in one case: stacked strips with one time axis. The median round is drawn."""

    title: str
    case: str
    panels: tuple[Panel, ...]
    note: str = ""


@dataclass(frozen=True)
class Curve:
    """A figure against the cases' x, one line per contestant and series; whiskers from least to greatest round."""

    title: str
    figure: str
    x_label: str
    series: tuple[str, ...] = ()
    """Which series; empty: all."""
    log_x: bool = True
    log_y: bool = False
    note: str = ""


@dataclass(frozen=True)
class Bars:
    """A figure per case and contestant; whiskers from least to greatest round."""

    title: str
    figure: str
    cases: tuple[str, ...] = ()
    """Which cases; empty: all."""
    note: str = ""


Chart = Timeline | Curve | Bars


@dataclass(frozen=True)
class Experiment:
    """One question, what is done to answer it, and how the answer is drawn."""

    name: str
    title: str
    question: str
    """What is asked, in a sentence or two, for the top of the page."""
    setups: Callable[[Size], list[Setup]]
    charts: tuple[Chart, ...]
    story: str = ""
    """The public measurement that it takes up."""
    method: str = ""
    """What is run, in words."""
    headline: str = "tps"
    """The figure whose ratio stands at the top."""
    headline_cases: tuple[str, ...] = ()
    """Cases whose headline figures stand at the top; empty: all."""
    extra_figures: tuple[str, ...] = ()
    """Figures for the main table beside the usual ones."""
    variants: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = field(default_factory=dict)
    """Engine -> its variations, each a name and options, instead of one contestant."""
    ceiling: bool = False
    """Whether the ceiling plugin can run it, or some of its cases."""
    apart: bool = False
    """Not part of `all`: it needs something that is not fetched otherwise, or asks at length what another one asks."""


TPS = Panel("tps", "transactions per second", "/s")
HISTORY = Panel("history", "history list length", "transactions")
HISTORY_BYTES = Panel("history_bytes", "history", "bytes")
P99 = Panel("p99", "p99 latency", "ms")
