"""Differential test: seeded programs over many table shapes, the same on two engines, every answer compared."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from diff.answer import Side
from diff.compare import REFERENCE_CORRUPT, Difference, run_step, settled
from diff.crosses import THEMES, Crosses
from diff.program import Program
from diff.reduce import Reducer, script
from diff.scenarios import LAYOUTS, Scenes, refusal_steps, sequence_steps
from diff.shapes import all_shapes
from diff.step import Step
from lib.engines import engine
from lib.places import find_places
from lib.server import Server, home_in_memory, stop_on_signals

FAR_BEYOND = 100_000_000
"""No program computes ids as large as this."""


@dataclass
class Totals:
    """What a run has seen."""

    statements: int = 0
    shapes: int = 0
    found: list[str] = field(default_factory=list)
    known: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    """How often which kind of statement met which answer, for --answers."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./ferrite test diff", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--statements", type=int, default=60000, help="about this many in all")
    parser.add_argument("--shapes", default="", help="comma-separated names or parts of names; default: all")
    parser.add_argument("--engines", default="innodb,ferrite", help="reference engine, engine under test")
    parser.add_argument("--ci", action="store_true", help="a short run")
    parser.add_argument("--limit", type=int, default=20, help="stop after so many differences")
    parser.add_argument("--per-shape", type=int, default=2, help="go to the next shape after so many")
    parser.add_argument("--reduce-seconds", type=float, default=25)
    parser.add_argument("--out", default="", help="directory for the reproducers")
    parser.add_argument("--answers", action="store_true", help="print how often which statement met which error")
    parser.add_argument("--list", action="store_true", help="print the shapes' names")
    parser.add_argument("--print", action="store_true", dest="show", help="print the programs instead of running them")
    arguments = parser.parse_args()
    if arguments.ci:
        arguments.statements = min(arguments.statements, 14000)
    return arguments


def programs(arguments: argparse.Namespace) -> list[tuple[str, list[Step]]]:
    """All programs of this run."""
    wanted = [w for w in arguments.shapes.split(",") if w]

    def picked(name: str) -> bool:
        return not wanted or any(w == name or w in name for w in wanted)

    shapes = [s for s in all_shapes(arguments.seed) if picked(s.name)]
    layouts = [x for x in LAYOUTS if picked(x.name)]
    themes = [x for x in THEMES if picked(x)]
    parts = sum(s.weight for s in shapes) + 0.5 * len(layouts) + len(themes) + (1 if picked("sequences") else 0)
    share = arguments.statements / max(parts, 0.01)
    out = [(s.name, Program(s, arguments.seed).build(int(share * s.weight))) for s in shapes]
    out += [(x.name, Scenes(x, arguments.seed).build(int(share * 0.5))) for x in layouts]
    out += [(x, Crosses(x, arguments.seed).build(int(share))) for x in themes]
    if picked("sequences"):
        out.append(("sequences", sequence_steps(arguments.seed, int(share))))
    if picked("refusals"):
        out.append(("refusals", refusal_steps()))
    return out


class Runner:
    """Runs programs on two servers."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.totals = Totals()
        self.seen: set[tuple[str, str, str]] = set()
        """Statements and pairs of answers that were reported: the same again is only counted."""
        self.deadly: set[str] = set()
        """Statements that ended the server: not run again in this run."""
        self.muted: set[str] = set()
        """Set-up statements of this shape whose answers are known to differ and that are needed all the same."""
        self.sides = self._sides()
        self.out = Path(arguments.out) if arguments.out else None

    def _sides(self) -> tuple[Side, Side]:
        names = self.arguments.engines.split(",")
        if len(names) != 2:
            sys.exit("--engines wants two names, such as innodb,ferrite")
        made = []
        for name in names:
            kind = engine(name)
            options = [
                kind.flush(0),
                kind.pool("96M"),
                kind.lock_wait(3),
                "--character-set-server=utf8mb4",
                "--max-allowed-packet=64M",
                f"--default-tmp-storage-engine={kind.name}",
                "--lock-wait-timeout=8",
                "--innodb-stats-persistent=0",
                "--innodb-stats-auto-recalc=0",
                "--innodb-flush-method=nosync",
                "--loose-ferrite-use-direct-io=0",
                "--sync-frm=0",
            ]
            server = Server(find_places(), kind, options, home_in_memory())
            server.start()
            made.append(Side(server, kind))
        return made[0], made[1]

    def close(self) -> None:
        """Stop the servers."""
        for side in self.sides:
            side.server.remove()

    def run_program(self, name: str, steps: list[Step]) -> None:
        """One shape; after a difference it starts again behind the step that differed."""
        self.totals.shapes += 1
        found = 0
        skip: set[int] = set()
        self.muted = set()
        while found < self.arguments.per_shape and len(self.totals.found) < self.arguments.limit:
            difference = self._pass(steps, skip, count=found == 0)
            if difference is None:
                return
            found += 1
            self._report(name, [s for i, s in enumerate(steps) if i not in skip], difference, steps)
            if not difference.step.setup:
                skip |= self._alike(steps, difference)
            elif difference.one.kind != difference.two.kind:
                return
            self.muted.add(difference.step.sql)

    def _alike(self, steps: list[Step], difference: Difference) -> set[int]:
        """Indexes to leave out next time: the step that differed and others of its very form."""
        form = difference.step.sql.split("(")[0][:24]
        if difference.step.sql.startswith(("SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE")):
            return {i for i, s in enumerate(steps) if s is difference.step}
        return {i for i, s in enumerate(steps) if s.sql.startswith(form) and not s.setup}

    def _pass(self, steps: list[Step], skip: set[int], count: bool) -> Difference | None:
        for side in self.sides:
            side.reset()
        position = 0
        for index, step in enumerate(steps):
            if index in skip or step.sql in self.deadly:
                continue
            one, two, found = run_step(self.sides, position, step)
            position += 1
            self.totals.statements += count
            if self.arguments.answers:
                self.totals.answers[f"{step.sql.split()[0]} {one.kind} {one.code or ''}"] += 1
            if found and (why := self._fault_of_reference(found, steps)):
                self.totals.known[f"({why}: program ended)"] += 1
                return None
            if found and found.known:
                self.totals.known[found.known] += 1
                if step.setup:
                    return None
            elif found and not (step.setup and step.sql in self.muted):
                if _face(found) not in self.seen:
                    return found
                self.totals.known["(reported before)"] += 1
        return settled(self.sides, position)

    def _fault_of_reference(self, found: Difference, steps: list[Step]) -> str | None:
        """Why nothing is to be learnt from the rest of the program, if it is so."""
        if found.one.code == REFERENCE_CORRUPT:
            return "the reference's index is corrupt"
        if found.one.kind == "crash" and found.two.kind != "crash":
            return "the reference's server died"
        if found.known or not found.one.kind == found.two.kind == "rows":
            return None
        if self.sides[0].has_corrupt_table():
            return "the reference's index is corrupt"
        if _has_unwritten_id(found, steps):
            return "the reference reads an id that nobody wrote"
        return None

    def _report(self, name: str, steps: list[Step], difference: Difference, _all: list[Step]) -> None:
        side = self.sides[1]
        if difference.two.kind == "crash":
            self.deadly.add(difference.step.sql)
        if difference.one.kind == difference.two.kind and not difference.one.rows:
            self.seen.add(_face(difference))
        print(
            f"\n=== difference {len(self.totals.found) + 1}: shape {name}, seed {self.arguments.seed}, statement {difference.index}",
            flush=True,
        )
        reducer = Reducer(self.sides, self.arguments.reduce_seconds, self.muted)
        short = reducer.reduce(steps, difference)
        text = self._describe(name, steps, short, difference)
        print(text, flush=True)
        self.totals.found.append(f"{name}: {difference.step.sql[:100]}")
        if self.out:
            self.out.mkdir(parents=True, exist_ok=True)
            target = self.out / f"{len(self.totals.found):02d}-{name}-{self.arguments.seed}.md"
            target.write_text(f"# {name}: {side.engine.name} differs\n\n```\n{text}\n```\n", encoding="utf-8")

    def _describe(self, name: str, steps: list[Step], short: list[Step], difference: Difference) -> str:
        one, two = self.sides
        again = self._rerun(short) or difference
        return "\n".join(
            [
                f"statement: {difference.step.render(two.engine.name, two.engine.prefix)[:1500]}",
                f"  {one.engine.name}: {again.one.brief()}",
                f"  {two.engine.name}: {again.two.brief()}",
                f"  {_what_differs(again)}",
                f"  again: ./ferrite test diff --seed {self.arguments.seed} --shapes {name} --statements {self.arguments.statements}",
                f"--- reproducer, {len(short)} of {len(steps)} statements; the last one differs",
                script(short, two.engine.name, two.engine.prefix)[:20000],
                "---",
            ]
        )

    def _rerun(self, short: list[Step]) -> Difference | None:
        for side in self.sides:
            side.reset()
        last = None
        for index, step in enumerate(short):
            last = run_step(self.sides, index, step)[2] or last
        return last


def _has_unwritten_id(found: Difference, steps: list[Step]) -> bool:
    """Whether the reference's rows alone have an id far beyond all that the program says."""
    names = [column[0] for column in found.one.columns]
    if "id" not in names:
        return False
    at = names.index("id")
    strange = {row[at] for row in found.one.rows} - {row[at] for row in found.two.rows}
    numbers = {n.decode().lstrip("-") for n in strange if n and n.lstrip(b"-").isdigit()}
    return any(int(n) >= FAR_BEYOND and not any(n in step.sql for step in steps) for n in numbers)


def _face(found: Difference) -> tuple[str, str, str]:
    return (found.step.sql, found.one.brief(), found.two.brief())


def _what_differs(found: Difference) -> str:
    names = ("kind", "rows", "columns", "affected", "insert id", "info", "code", "message", "warnings")
    if found.two.kind == "crash":
        return "the connection or the server was lost"
    pairs = zip(names, found.one.normal(), found.two.normal(), strict=True)
    wrong = [n for n, a, b in pairs if a != b]
    extra = ""
    if wrong == ["columns"]:
        extra = f": {[(a, b) for a, b in zip(found.one.columns, found.two.columns, strict=False) if a != b][:3]}"
    return f"differs in: {', '.join(wrong)}{extra}"


def main() -> int:
    """Run; 0 when the engines agree."""
    arguments = _arguments()
    stop_on_signals()
    todo = programs(arguments)
    if arguments.list or arguments.show:
        for name, steps in todo:
            print(f"{name}: {len(steps)} statements")
            print(script(steps, "X", "x") if arguments.show else "", end="\n" if arguments.show else "")
        return 0
    begun = time.monotonic()
    runner = Runner(arguments)
    try:
        for number, (name, steps) in enumerate(todo, 1):
            shape_begun = time.monotonic()
            runner.run_program(name, steps)
            if len(runner.totals.found) >= arguments.limit:
                print(f"stopped: {arguments.limit} differences")
                break
            print(
                f"[{number}/{len(todo)}] {name}: {len(steps)} statements, {time.monotonic() - shape_begun:.1f} s",
                flush=True,
            )
    finally:
        runner.close()
    return _summary(runner.totals, arguments, time.monotonic() - begun)


def _summary(totals: Totals, arguments: argparse.Namespace, seconds: float) -> int:
    print(
        f"\n{totals.statements} statements over {totals.shapes} shapes in {seconds:.0f} s, engines {arguments.engines}, seed {arguments.seed}"
    )
    for line, count in totals.known.items():
        print(f"  intended difference {line}: {count}")
    for line, count in sorted(totals.answers.items(), key=lambda x: -x[1]):
        print(f"  {count:7} {line}")
    print(f"  differences: {len(totals.found)}")
    for text in totals.found:
        print(f"    {text}")
    return 1 if totals.found else 0


if __name__ == "__main__":
    sys.exit(main())
