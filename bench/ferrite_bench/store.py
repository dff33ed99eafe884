"""Results as JSON lines: written as they come, so that a run that breaks off keeps what it measured; and read again.

Kinds of lines: run (what, where, with what), settings (an engine's options), command (a load's command line), sample
(one second), mark (something done at a moment), note, counters (what
the engine's own counters did during a load), figure (one value with unit and direction), problem, end.
A file without a line `end`, or with a problem, is an incomplete run.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RECORDS = "records.jsonl"


@dataclass
class Place:
    """Where in a run something was measured."""

    contestant: str
    setup: str = ""
    case: str = ""
    series: str = ""
    x: float | None = None
    round: int = 0


class Writer:
    """Appends lines; each one is on disk before the next is measured."""

    def __init__(self, directory: Path, stamp: dict[str, str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = (directory / RECORDS).open("w", encoding="utf-8")
        self._stamp = stamp
        self.configs: dict[tuple[str, str], str] = {}
        self._commands: set[tuple[str, str, str]] = set()
        self.problems = 0

    def line(self, kind: str, **values: Any) -> None:
        """One line."""
        self._file.write(json.dumps({"kind": kind, **values}, separators=(",", ":")) + "\n")
        self._file.flush()

    def settings(self, place: Place, options: list[str], config: str, notes: str) -> None:
        """What a server was started with."""
        self.configs[(place.contestant, place.setup)] = config
        self.line(
            "settings", contestant=place.contestant, setup=place.setup, config=config, options=options, notes=notes
        )

    def command(self, place: Place, text: str) -> None:
        """A load's command line, once per case and contestant."""
        key = (place.contestant, place.setup, place.case)
        if key not in self._commands:
            self._commands.add(key)
            self.line("command", contestant=place.contestant, setup=place.setup, case=place.case, text=text)

    def sample(self, place: Place, second: float, values: dict[str, float]) -> None:
        """One second of one case."""
        short = {k: round(v, 3) for k, v in values.items()}
        where = {"contestant": place.contestant, "setup": place.setup, "case": place.case, "round": place.round}
        self.line("sample", **where, t=second, values=short)

    def mark(self, place: Place, second: float, text: str) -> None:
        """Something that was done."""
        where = {"contestant": place.contestant, "setup": place.setup, "case": place.case, "round": place.round}
        self.line("mark", **where, t=second, text=text)

    def figure(self, place: Place, name: str, value: float, unit: str, direction: str) -> None:
        """One value."""
        config = self.configs.get((place.contestant, place.setup), "")
        values = {"name": name, "value": value, "unit": unit, "direction": direction, "config": config}
        self.line("figure", **asdict(place), **values, **self._stamp)

    def note(self, place: Place, text: str) -> None:
        """Something a reader should know of the circumstances."""
        self.line("note", contestant=place.contestant, setup=place.setup, text=text)

    def counters(self, place: Place, before: dict[str, float], after: dict[str, float]) -> None:
        """What an engine's own counters did during a load: name -> growth; only those that moved."""
        moved = {k: v - before.get(k, 0.0) for k, v in after.items() if v != before.get(k, 0.0)}
        where = {"contestant": place.contestant, "setup": place.setup, "case": place.case, "round": place.round}
        self.line("counters", **where, values=moved)

    def problem(self, place: Place | None, text: str) -> None:
        """Something that makes the run incomplete."""
        self.problems += 1
        self.line("problem", **(asdict(place) if place else {}), text=text)

    def end(self, complete: bool) -> None:
        """The last line."""
        self.line("end", complete=complete, at=time.strftime("%Y-%m-%d %H:%M:%S"))
        self.close()

    def close(self) -> None:
        """Without a last line the run counts as incomplete."""
        self._file.close()


@dataclass(frozen=True)
class Figure:
    """One value read back."""

    contestant: str
    setup: str
    case: str
    series: str
    x: float | None
    round: int
    name: str
    value: float
    unit: str
    direction: str


@dataclass
class Run:
    """A run read back."""

    header: dict[str, Any]
    settings: list[dict[str, Any]] = field(default_factory=list)
    commands: list[dict[str, Any]] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    samples: dict[tuple[str, str, int], list[tuple[float, dict[str, float]]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """(contestant, case, round) -> seconds."""
    marks: dict[tuple[str, str, int], list[tuple[float, str]]] = field(default_factory=lambda: defaultdict(list))
    problems: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    complete: bool = False

    @property
    def contestants(self) -> list[dict[str, str]]:
        """Key, label, engine and colour of each, in the order of the run."""
        return list(self.header.get("contestants", []))

    def cases(self) -> list[str]:
        """Names of the cases that have figures, in the order measured."""
        return list(dict.fromkeys(f.case for f in self.figures))

    def values(self, contestant: str, case: str, name: str) -> dict[int, float]:
        """Round -> value."""
        return {
            f.round: f.value for f in self.figures if f.contestant == contestant and f.case == case and f.name == name
        }


def read(path: Path) -> Run:
    """Read a run's directory or file. A last line cut off by a crash is ignored."""
    file = path / RECORDS if path.is_dir() else path
    run = Run({})
    for text in file.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        _take(run, line.pop("kind"), line)
    run.complete = run.complete and not run.problems
    return run


def _take(run: Run, kind: str, line: dict[str, Any]) -> None:
    match kind:
        case "run":
            run.header = line
        case "settings":
            run.settings.append(line)
        case "command":
            run.commands.append(line)
        case "figure":
            run.figures.append(Figure(**{k: line[k] for k in Figure.__dataclass_fields__}))
        case "sample":
            run.samples[(line["contestant"], line["case"], line["round"])].append((line["t"], line["values"]))
        case "mark":
            run.marks[(line["contestant"], line["case"], line["round"])].append((line["t"], line["text"]))
        case "note":
            run.notes.append(line["text"])
        case "problem":
            run.problems.append(line)
        case "end":
            run.complete = bool(line["complete"])
