"""The page of a run: one file, nothing fetched from anywhere, readable in ten years."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from ferrite_bench.report import tables
from ferrite_bench.report.charts import Drawn, draw
from ferrite_bench.report.svg import VARIABLES, standalone
from ferrite_bench.report.units import name_of, short
from ferrite_bench.stats import paired_ratio, spread
from ferrite_bench.store import Run, read
from ferrite_bench.workloads import experiment
from ferrite_bench.workloads.base import Experiment

HERE = Path(__file__).parent
SIZES = {
    "smoke": "A smoke run: it shows that everything works, its figures mean nothing.",
    "quick": "A quick run: a first look, too short for a claim.",
    "full": "A full run.",
}


def write_page(directory: Path) -> Path:
    """Draw index.html and the pictures of a run's records; returns the page's path."""
    run = read(directory)
    item = experiment(run.header["experiment"])
    drawn = [draw(chart, run) for chart in item.charts]
    pictures = directory / "pictures"
    pictures.mkdir(exist_ok=True)
    for number, one in enumerate(drawn, 1):
        name = re.sub(r"[^a-z0-9]+", "-", one.title.lower()).strip("-")
        (pictures / f"{number}-{name}.svg").write_text(
            standalone(one.picture, one.title, _origin(run, one)), encoding="utf-8"
        )
    page = directory / "index.html"
    page.write_text(_page(run, item, drawn), encoding="utf-8")
    return page


def _origin(run: Run, one: Drawn) -> str:
    """The line at the foot of a picture that stands alone."""
    head = run.header
    state = "" if run.complete else "INCOMPLETE RUN. "
    rerun = str(head["rerun"])
    return f"{state}{' '.join(one.notes)} Commit {head['commit']}, {head['server']}; {rerun}".strip()


def _page(run: Run, item: Experiment, drawn: list[Drawn]) -> str:
    css = VARIABLES + (HERE / "page.css").read_text(encoding="utf-8")
    script = (HERE / "page.js").read_text(encoding="utf-8")
    body = "".join(
        (
            _head(run, item),
            _incomplete(run),
            _cards(run, item),
            _pictures(drawn),
            _tables(run, item),
            _method(run, item),
        )
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(item.title)} - Ferrite bench</title><style>{css}</style></head>\n"
        f'<body><main>{body}</main><div id="tip"></div><script>{script}</script></body></html>\n'
    )


def _head(run: Run, item: Experiment) -> str:
    head = run.header
    kicker = (
        f"Ferrite bench / {escape(item.name)} / {escape(str(head['started']))} / commit {escape(str(head['commit']))}"
    )
    size = SIZES.get(str(head["size"]), "")
    return (
        f'<p class="kicker">{kicker}</p><h1>{escape(item.title)}</h1><p class="question">{escape(item.question)}</p>'
        f'<p class="small">{escape(size)} Compare only what one run measured: the engines took turns on the same '
        "machine; an absolute figure says nothing about another one.</p>"
    )


def _incomplete(run: Run) -> str:
    if run.complete:
        return ""
    problems = "".join(
        f"<pre>{escape(' / '.join(str(p[k]) for k in ('contestant', 'setup', 'case') if p.get(k)))}\n{escape(p['text'])}</pre>"
        for p in run.problems
    )
    return (
        '<section class="incomplete"><h2>This run is incomplete</h2>'
        f"{problems or 'It was cut off before its end.'}</section>"
    )


def _cards(run: Run, item: Experiment) -> str:
    cases = [c for c in run.cases() if not item.headline_cases or c in item.headline_cases]
    cases = [c for c in cases if any(f.case == c and f.name == item.headline for f in run.figures)]
    both = tables.pair(run)
    if len(cases) == 1:
        cards = [_card(run, item, c["key"], cases[0]) for c in run.contestants]
        return f'<div class="cards">{"".join(cards)}</div>'
    if not both or not cases:
        return ""
    ratios = {
        c: r.median
        for c in cases
        if (r := paired_ratio(run.values(both[0], c, item.headline), run.values(both[1], c, item.headline)))
    }
    if not ratios:
        return ""
    who = f"{tables.label(run, both[0])} / {tables.label(run, both[1])}"
    low, high, middle = (
        min(ratios, key=ratios.__getitem__),
        max(ratios, key=ratios.__getitem__),
        spread(ratios.values()),
    )
    assert middle is not None
    three = [
        ("median of the cases", middle.median, f"{len(ratios)} cases"),
        ("least", ratios[low], low),
        ("greatest", ratios[high], high),
    ]
    ceiling = next((c["key"] for c in run.contestants if c["engine"] == "ceiling"), "")
    shares = [
        s.median
        for c in cases
        if (s := paired_ratio(run.values(both[0], c, item.headline), run.values(ceiling, c, item.headline)))
    ]
    text = "".join(
        f'<div class="card" style="--c:var(--axis)"><span class="who">{escape(who)}, {kind}</span><b>{value:.2f}</b>'
        f"<span>{escape(name_of(item.headline))}; {escape(where)}</span></div>"
        for kind, value, where in three
    )
    share = spread(shares)
    if share is not None:
        text += (
            f'<div class="card" style="--c:var(--ceiling)"><span class="who">{escape(tables.label(run, both[0]))}, '
            f"share of the ceiling</span><b>{share.median:.0%}</b><span>from {share.low:.0%} to {share.high:.0%} in "
            f"{share.count} cases</span></div>"
        )
    return f'<div class="cards">{text}</div>'


def _card(run: Run, item: Experiment, key: str, case: str) -> str:
    contestant = next(c for c in run.contestants if c["key"] == key)
    values = run.values(key, case, item.headline)
    found = spread(values.values())
    unit = next((f.unit for f in run.figures if f.name == item.headline), "")
    line = ""
    other = tables.rival(run, key)
    if other and contestant["engine"] != "ceiling":
        ratio = paired_ratio(values, run.values(other, case, item.headline))
        line = f"<span>{ratio.median:.2f} of {escape(tables.label(run, other))}</span>" if ratio else ""
    value = escape(short(found.median, unit)) if found else "not measured"
    return (
        f'<div class="card" style="--c:var(--{contestant["color"]})"><span class="who">{escape(contestant["label"])}</span>'
        f"<b>{value}</b><span>{escape(name_of(item.headline))}</span>{line}</div>"
    )


def _pictures(drawn: list[Drawn]) -> str:
    out = []
    for one in drawn:
        notes = "".join(f'<p class="note">{escape(n)}</p>' for n in one.notes)
        out.append(f"<figure><figcaption>{escape(one.title)}</figcaption>{one.picture}{notes}</figure>")
    return "".join(out)


def _tables(run: Run, item: Experiment) -> str:
    if not run.figures:
        return ""
    main = tables.table(run, (item.headline, *item.extra_figures, *tables.USUAL), item.ceiling)
    costs = tables.table(run, tables.COSTS, False)
    return (
        "<h2>Figures</h2>"
        '<p class="small">Medians over the rounds, least and greatest below them; ratios are taken within a round, so '
        f"that noise of the machine meets both.</p>{main}"
        f"<details><summary>What it cost: flushes, bytes, switches, processor time, memory, disk</summary>{costs}</details>"
    )


def _method(run: Run, item: Experiment) -> str:
    head = run.header
    notes = "".join(f"<br>{escape(n)}" for n in dict.fromkeys(run.notes))
    notes = f'<p class="small">{notes.removeprefix("<br>")}</p>' if notes else ""
    story = f"<h2>What it takes up</h2><p>{escape(item.story)}</p>" if item.story else ""
    machine = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in dict(head["machine"]).items())
    by_hand = []
    for c in run.commands:
        by_hand.append(f"# {c['contestant']}: {c['case']}\n{c['text']}")
    loads = (
        f"<details><summary>The same loads by hand</summary><pre>{escape(chr(10).join(by_hand))}</pre></details>"
        if by_hand
        else ""
    )
    return (
        f"<h2>How it was measured</h2><p>{escape(item.method)}</p>"
        "<p>Each engine has a server of its own, started from the same binary; while one is measured the others are "
        "paused. Flushes and bytes are those of the block device and include whatever else wrote to it.</p>"
        f"{notes}{story}<h2>Settings</h2>{tables.settings(run)}{loads}"
        f"<h2>Machine</h2><dl>{machine}<dt>server</dt><dd>{escape(str(head['server']))}</dd></dl>"
        f"<h2>Run it again</h2><pre>{escape(str(head['rerun']))}</pre>"
    )
