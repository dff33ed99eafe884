"""The tables of a page: medians with spread and ratio, and the figures that explain them."""

from __future__ import annotations

from html import escape

from ferrite_bench.report.units import name_of, short
from ferrite_bench.stats import Spread, paired_ratio, spread
from ferrite_bench.store import Run

SHARED = ("tps", "rows_per_second")
"""Figures told as a share of the ceiling."""
USUAL = ("tps", "worst_second", "p50", "p99")
COSTS = (
    "p95", "p999", "max", "errors", "flushes_per_txn", "log_flushes_per_txn", "writes_per_txn", "written_per_txn",
    "reads_per_txn", "read_per_txn", "switches_per_txn", "server_cpu_per_txn", "client_cpu_per_txn", "history_peak",
    "history_bytes_peak", "rss_peak", "disk_size",
)  # fmt: skip


def variation(run: Run, key: str) -> str:
    """What a contestant's label says after its engine's name: `Ferrite, snapshot open` -> `snapshot open`."""
    return label(run, key).partition(", ")[2]


def comparable(run: Run, one: str, other: str) -> bool:
    """Whether two contestants ran the same variation, or one of them ran none."""
    names = variation(run, one), variation(run, other)
    return "" in names or names[0] == names[1]


def rival(run: Run, key: str) -> str | None:
    """The contestant of InnoDB's to compare with: the same variation, or its last one where variations differ."""
    mine = variation(run, key)
    theirs = [c["key"] for c in run.contestants if c["engine"] == "innodb"]
    same = [c["key"] for c in run.contestants if variation(run, c["key"]) == mine]
    if not theirs or key == theirs[-1] or (key in theirs and len(same) > 1):
        return None
    return next((k for k in theirs if k in same and k != key), theirs[-1])


def pair(run: Run) -> tuple[str, str] | None:
    """Whose ratio is told: Ferrite to InnoDB, the last variation of each; else the first two measured."""
    measured = {f.contestant for f in run.figures}
    keys = [c for c in run.contestants if c["key"] in measured and c["engine"] != "ceiling"]
    ours = next((c["key"] for c in reversed(keys) if c["engine"] == "ferrite"), None)
    theirs = [c["key"] for c in keys if c["engine"] == "innodb"]
    if ours and theirs:
        other = rival(run, ours)
        return ours, other if other in theirs else theirs[-1]
    if len(keys) < 2:
        return None
    if theirs:
        others = [c["key"] for c in keys if c["key"] != theirs[-1]]
        return next((k for k in others if k not in theirs), others[0]), theirs[-1]
    return keys[0]["key"], keys[1]["key"]


def label(run: Run, key: str) -> str:
    """A contestant's name."""
    return next(c["label"] for c in run.contestants if c["key"] == key)


def _cell(found: Spread | None, unit: str) -> str:
    if found is None:
        return '<td class="none">not measured</td>'
    wide = (
        f'<span class="spread">{short(found.low, unit)} to {short(found.high, unit)}</span>' if found.count > 1 else ""
    )
    return f"<td>{escape(short(found.median, unit))}{wide}</td>"


def _ratio_cell(found: Spread | None, direction: str) -> str:
    if found is None:
        return '<td class="none"></td>'
    good = (found.median >= 1) == (direction == "higher")
    kind = "" if abs(found.median - 1) < 0.03 else ("good" if good else "bad")
    wide = f'<span class="spread">{found.low:.2f} to {found.high:.2f}</span>' if found.count > 1 else ""
    return f'<td class="{kind}">{found.median:.2f}{wide}</td>'


def table(run: Run, names: tuple[str, ...], with_ceiling: bool) -> str:
    """One row per case and figure, one column per contestant, then ratios."""
    cases = run.cases()
    measured = run.contestants
    both = pair(run)
    ceiling = next((c["key"] for c in measured if c["engine"] == "ceiling"), None) if with_ceiling else None
    head = ["<th>case</th><th>figure</th>"] + [f'<th class="{c["color"]}">{escape(c["label"])}</th>' for c in measured]
    if both:
        head.append(f"<th>{escape(label(run, both[0]))} / {escape(label(run, both[1]))}</th>")
    if ceiling:
        head.append("<th>share of the ceiling</th>")
    rows = []
    for case in cases:
        lines = _case_rows(run, case, names, both, ceiling)
        for number, line in enumerate(lines):
            first = f'<th rowspan="{len(lines)}" scope="rowgroup">{escape(case)}</th>' if number == 0 else ""
            rows.append(f"<tr{' class=first' if number == 0 else ''}>{first}{line}</tr>")
    kind = ' class="dense"' if len(head) > 6 else ""
    body = f"<thead><tr>{''.join(head)}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="wide"><table{kind}>{body}</table></div>'


def _case_rows(
    run: Run, case: str, names: tuple[str, ...], both: tuple[str, str] | None, ceiling: str | None
) -> list[str]:
    out = []
    known = {f.name: (f.unit, f.direction) for f in run.figures if f.case == case}
    for name in dict.fromkeys(names):
        if name not in known:
            continue
        unit, direction = known[name]
        cells = [_cell(spread(run.values(c["key"], case, name).values()), unit) for c in run.contestants]
        if both:
            ratio = paired_ratio(run.values(both[0], case, name), run.values(both[1], case, name))
            cells.append(_ratio_cell(ratio, direction))
        if ceiling:
            ours = both[0] if both else run.contestants[0]["key"]
            share = (
                paired_ratio(run.values(ours, case, name), run.values(ceiling, case, name)) if name in SHARED else None
            )
            cells.append(f"<td>{share.median:.0%}</td>" if share else "<td></td>")
        out.append(f"<td>{escape(name_of(name))}</td>{''.join(cells)}")
    return out


def settings(run: Run) -> str:
    """What each server was started with."""
    out = []
    for item in run.contestants:
        mine = [s for s in run.settings if s["contestant"] == item["key"]]
        if not mine:
            continue
        common = [o for o in mine[0]["options"] if all(o in s["options"] for s in mine)]
        text = "\n".join(common)
        for s in mine:
            special = [o for o in s["options"] if o not in common]
            if special:
                text += f"\n\n# {s['setup']}\n" + "\n".join(special)
        note = f"<p>{escape(mine[0]['notes'])}</p>" if mine[0]["notes"] else ""
        out.append(f"<details><summary>{escape(item['label'])}</summary>{note}<pre>{escape(text)}</pre></details>")
    return "".join(out)
