"""A run as Markdown for documents: what it was, one table of medians, and where Ferrite is behind a peer.

A figure counts as behind when the median of the rounds' ratios is worse by more than `EQUAL` and every round agrees:
the worst round of the peer still beats ours. One round alone has no spread, so it must differ by a tenth.
"""

from __future__ import annotations

from ferrite_bench.report.tables import SHARED, comparable, label, pair
from ferrite_bench.report.units import name_of, short
from ferrite_bench.stats import Spread, paired_ratio, spread
from ferrite_bench.store import Run
from ferrite_bench.workloads.base import Experiment

EQUAL = 0.03
NONE_BEHIND = "Ferrite is behind a peer in none of its figures."
SHOWN = (
    "--ferrite-buffer-pool-size", "--ferrite-flush-log-at-trx-commit", "--ferrite-log-budget", "--sync-binlog",
    "--innodb-buffer-pool-size", "--innodb-flush-log-at-trx-commit", "--innodb-log-file-size",
)  # fmt: skip


def section(run: Run, item: Experiment, names: tuple[str, ...] = ()) -> str:
    """Commit, settings, table, and the list of what is behind; `names`: which figures instead of the usual ones."""
    machine = run.header["machine"]
    where = f"{machine['cpu']}, {machine['cpus']} processors, {machine.get('memory', 'unknown')}"
    state = "" if run.complete else " **This run is incomplete.**"
    lines = [
        f"# {item.title}",
        "",
        f"{item.question}",
        "",
        f"`{run.header['rerun']}` at commit {run.header['commit'][:8]}, {run.header['started'][:10]}, "
        f"{run.header['server']}, {where}.{state}",
        "",
        f"{item.method} {_settings(run)}.",
        "",
        "Medians (least to greatest round); the ratio is the median of the rounds' ratios.",
        "",
        *table(run, names or (item.headline, *item.extra_figures)),
        "",
        *(behind(run, item) or [NONE_BEHIND if _rivals(run) else "No peer of Ferrite's took part."]),
    ]
    return "\n".join(lines) + "\n"


def summary(runs: list[tuple[Run, Experiment]]) -> str:
    """A table with a line for each run: the headline figure's ratios over the cases, and the share of the ceiling."""
    head = ["experiment", "figure", "Ferrite / InnoDB", "Ferrite / MyRocks", "share of the ceiling", "commit"]
    lines = [_row(head), _row(["---"] * len(head))]
    for run, item in runs:
        cells = [_over_cases(run, item, engine) for engine in ("innodb", "rocksdb", "ceiling")]
        commit = run.header["commit"][:8] + ("" if run.complete else ", incomplete")
        lines.append(_row([item.name, name_of(item.headline), *cells, commit]))
    return "\n".join(lines) + "\n"


def _over_cases(run: Run, item: Experiment, engine: str) -> str:
    """Median, least and greatest of the cases' median ratios."""
    ours = next((c["key"] for c in reversed(run.contestants) if c["engine"] == "ferrite"), "")
    peers = [c["key"] for c in run.contestants if ours and c["engine"] == engine and comparable(run, ours, c["key"])]
    if not peers:
        return ""
    cases = [c for c in run.cases() if not item.headline_cases or c in item.headline_cases]
    ratios = [r.median for c in cases if (r := _pairs(run, (ours, peers[-1]), c, item.headline))]
    found = spread(ratios)
    return "" if found is None else _ratio(found)


def _settings(run: Run) -> str:
    """The options of the first contestant that make a figure comparable, setup by setup where they differ."""
    if not run.settings:
        return "The settings are in the records"
    first = next((c for c in run.contestants if c["engine"] == "ferrite"), run.contestants[0])
    found: dict[str, list[str]] = {}
    for line in run.settings:
        if line["contestant"] == first["key"]:
            own = [o for o in line["options"] if first["engine"] != "ferrite" or not o.startswith("--innodb")]
            words = ", ".join(_readable(o) for o in own if o.startswith(SHOWN)) or "defaults"
            found.setdefault(words, [])
            if line["setup"] not in found[words]:
                found[words].append(line["setup"])
    told = [f"{', '.join(setups)}: `{words}`" if len(found) > 1 else f"`{words}`" for words, setups in found.items()]
    others = "; its peers' equal them" if len(run.contestants) > 1 else ""
    return f"{first['label'].partition(',')[0]}'s settings: {'; '.join(told)}{others}"


def _readable(option: str) -> str:
    """Without dashes, large sizes in MiB as the server writes them."""
    name, _, value = option.removeprefix("--").partition("=")
    whole = value.isdigit() and int(value) >= 1 << 20 and int(value) % (1 << 20) == 0
    return f"{name}={int(value) >> 20}M" if whole else f"{name}={value}"


def table(run: Run, names: tuple[str, ...]) -> list[str]:
    """A row per case and figure; a column per contestant; the ratio to InnoDB and the share of the ceiling."""
    both = pair(run)
    ceiling = next((c["key"] for c in run.contestants if c["engine"] == "ceiling"), None)
    head = ["case", "figure", *(c["label"] for c in run.contestants)]
    head += [f"{label(run, both[0])} / {label(run, both[1])}"] if both else []
    head += ["share of the ceiling"] if ceiling else []
    lines = [_row(head), _row(["---"] * len(head))]
    for case in run.cases():
        known = {f.name: f.unit for f in run.figures if f.case == case}
        for name in dict.fromkeys(n for n in names if n in known):
            cells = [_cell(spread(run.values(c["key"], case, name).values()), known[name]) for c in run.contestants]
            if both:
                cells.append(_ratio(_pairs(run, both, case, name)))
            if ceiling and both:
                share = _pairs(run, (both[0], ceiling), case, name) if name in SHARED else None
                cells.append(f"{share.median:.0%}" if share else "")
            lines.append(_row([case, name_of(name), *cells]))
    return lines


def behind(run: Run, item: Experiment) -> list[str]:
    """One line per case and figure in which a peer is better than Ferrite in each round."""
    lines = []
    for case in run.cases():
        known = {f.name: (f.unit, f.direction) for f in run.figures if f.case == case}
        for name in dict.fromkeys((item.headline, "p99", *item.extra_figures)):
            for ours, peer in _rivals(run) if name in known else []:
                unit, direction = known[name]
                ratio = _pairs(run, (ours["key"], peer["key"]), case, name)
                if ratio and is_behind(ratio, direction):
                    mine, theirs = (
                        _median(spread(run.values(c["key"], case, name).values()), unit) for c in (ours, peer)
                    )
                    lines.append(
                        f"- behind: {case}, {name_of(name)}: {ours['label']} {mine}, {peer['label']} {theirs} "
                        f"({ratio.median:.2f})"
                    )
    return lines


def _rivals(run: Run) -> list[tuple[dict[str, str], dict[str, str]]]:
    """Ferrite's contestants with those of its peers that ran the same variation, or none."""
    ours = [c for c in run.contestants if c["engine"] == "ferrite"]
    peers = [c for c in run.contestants if c["engine"] not in ("ferrite", "ceiling")]
    return [(mine, peer) for mine in ours for peer in peers if comparable(run, mine["key"], peer["key"])]


def is_behind(ratio: Spread, direction: str) -> bool:
    """Worse in the median and in every round."""
    least = EQUAL if ratio.count > 1 else 0.1
    if direction == "higher":
        return ratio.median < 1 - least and ratio.high < 1
    return ratio.median > 1 + least and ratio.low > 1


def _pairs(run: Run, both: tuple[str, str], case: str, name: str) -> Spread | None:
    return paired_ratio(run.values(both[0], case, name), run.values(both[1], case, name))


def _median(found: Spread | None, unit: str) -> str:
    return short(found.median, unit) if found else "not measured"


def _cell(found: Spread | None, unit: str) -> str:
    if found is None:
        return "not measured"
    wide = f" ({short(found.low, unit)} to {short(found.high, unit)})" if found.count > 1 else ""
    return short(found.median, unit) + wide


def _ratio(found: Spread | None) -> str:
    if found is None:
        return ""
    return f"{found.median:.2f}" + (f" ({found.low:.2f} to {found.high:.2f})" if found.count > 1 else "")


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
