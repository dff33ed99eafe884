"""long-write-heavy: the load of `write-heavy` for an hour."""

from __future__ import annotations

from ferrite_bench.workloads.base import Experiment, Setup, Size
from ferrite_bench.workloads.write_heavy import CHARTS, FIGURES, VARIANTS, setups


def _setups(size: Size) -> list[Setup]:
    return setups(size, 3600)[:1]


EXPERIMENT = Experiment(
    name="long-write-heavy",
    title="Heavy writing for an hour",
    question="The experiment `write-heavy` asks about fifteen minutes of steady writing. And after an hour?",
    method="As `write-heavy`, without the partitioned table.",
    setups=_setups,
    charts=CHARTS,
    variants=VARIANTS,
    extra_figures=FIGURES,
    apart=True,
)
