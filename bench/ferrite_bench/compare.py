"""`bench compare A B`: two runs side by side, figure by figure, and which of them got better or worse."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ferrite_bench.stats import Spread, spread
from ferrite_bench.store import Run, read


@dataclass(frozen=True)
class Change:
    """One figure in both runs."""

    contestant: str
    case: str
    name: str
    unit: str
    before: Spread
    after: Spread
    direction: str

    @property
    def ratio(self) -> float:
        """After / before."""
        return self.after.median / self.before.median if self.before.median else float("inf")

    @property
    def verdict(self) -> str:
        """Better or worse only when the spreads do not overlap; a single round must differ by a tenth."""
        rounds = min(self.before.count, self.after.count)
        if abs(self.ratio - 1) < (0.02 if rounds > 1 else 0.1):
            return "same" if rounds > 1 else "same within a tenth, one round"
        if self.after.low <= self.before.high and self.before.low <= self.after.high:
            return "same within the spread"
        up = self.after.median > self.before.median
        return "better" if up == (self.direction == "higher") else "worse"


def changes(before: Run, after: Run, names: set[str] | None = None) -> list[Change]:
    """All figures that both runs hold."""
    found = []
    keys = dict.fromkeys((f.contestant, f.case, f.name, f.unit, f.direction) for f in before.figures)
    for contestant, case, name, unit, direction in keys:
        old = spread(before.values(contestant, case, name).values())
        new = spread(after.values(contestant, case, name).values())
        if old and new and (names is None or name in names):
            found.append(Change(contestant, case, name, unit, old, new, direction))
    return found


def differences(before: Run, after: Run) -> list[str]:
    """What makes the two hard to compare."""
    out = []
    for key in ("experiment", "size", "server", "machine_id"):
        a, b = before.header.get(key), after.header.get(key)
        if a != b:
            out.append(f"{key.replace('_id', '')} differs: {a} and {b}")
    configs = [{(s["contestant"], s["setup"]): s["config"] for s in run.settings} for run in (before, after)]
    changed = [f"{k[0]} in {k[1]}" for k in configs[0].keys() & configs[1].keys() if configs[0][k] != configs[1][k]]
    if changed:
        out.append(f"settings differ: {', '.join(sorted(changed))}")
    for label, run in (("first", before), ("second", after)):
        if not run.complete:
            out.append(f"the {label} run is incomplete")
    return out


def table(paths: tuple[Path, Path], every: bool) -> str:
    """The comparison as text."""
    before, after = read(paths[0]), read(paths[1])
    names = None if every else {"tps", "p99", "seconds", "rows_per_second", "written_per_txn", "disk_size"}
    lines = [f"{before.header.get('experiment')}: {before.header.get('commit')} -> {after.header.get('commit')}"]
    lines += [f"note: {x}" for x in differences(before, after)]
    rows = [("contestant", "case", "figure", "before", "after", "ratio", "")]
    for c in changes(before, after, names):
        values = (f"{c.before.median:,.4g} {c.unit}", f"{c.after.median:,.4g} {c.unit}", f"{c.ratio:.3f}", c.verdict)
        rows.append((c.contestant, c.case, c.name, *values))
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    lines += ["  ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=True)).rstrip() for r in rows]
    if len(rows) == 1:
        lines.append("the two runs have no figure in common")
    return "\n".join(lines)
