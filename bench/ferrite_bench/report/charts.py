"""The three kinds of pictures: timelines, curves, bars. From a run that was read back to SVG."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from ferrite_bench.report import svg
from ferrite_bench.report.svg import LEFT, WIDTH, Area, Line, Scale, tag
from ferrite_bench.report.units import name_of, short, tick, ticks
from ferrite_bench.stats import spread
from ferrite_bench.store import Run
from ferrite_bench.terms import CLOSED, OPEN
from ferrite_bench.workloads.base import Bars, Chart, Curve, Panel, Timeline


@dataclass(frozen=True)
class Drawn:
    """A finished picture and what has to be said below it."""

    title: str
    picture: str
    notes: tuple[str, ...]


def draw(chart: Chart, run: Run) -> Drawn:
    """Any of the three."""
    match chart:
        case Timeline():
            return _timeline(chart, run)
        case Curve():
            return _curve(chart, run)
        case Bars():
            return _bars(chart, run)


def _style(run: Run, key: str) -> tuple[str, int]:
    """Colour and dash of a contestant: variations of one engine share the colour."""
    mine = next(c for c in run.contestants if c["key"] == key)
    same = [c["key"] for c in run.contestants if c["color"] == mine["color"]]
    return mine["color"], len(same) - 1 - same.index(key)


def _absent(run: Run, shown: set[str], what: str) -> list[str]:
    """Names of those without data: a picture never misses somebody silently."""
    gone = [c["label"] for c in run.contestants if c["key"] not in shown and c["engine"] != "ceiling"]
    return [f"{what}: {', '.join(gone)}."] if gone else []


# ---- timelines --------------------------------------------------------------------------------


def median_round(run: Run, contestant: str, case: str) -> int | None:
    """The round whose speed is the median one; of two middle ones the earlier."""
    rounds = sorted(r for c, k, r in run.samples if c == contestant and k == case)
    if not rounds:
        return None
    speed = run.values(contestant, case, "tps")
    known = sorted((r for r in rounds if r in speed), key=lambda r: speed[r])
    return known[(len(known) - 1) // 2] if known else rounds[0]


def _lines(run: Run, chart: Timeline, panel: Panel) -> list[Line]:
    out = []
    for item in run.contestants:
        number = median_round(run, item["key"], chart.case)
        if number is None:
            continue
        points = [(t, v[panel.metric]) for t, v in run.samples[(item["key"], chart.case, number)] if panel.metric in v]
        if points:
            color, style = _style(run, item["key"])
            out.append(Line(item["label"], color, points, style=style))
    return out


def _marks(run: Run, case: str) -> list[tuple[float, str]]:
    """Marks that all contestants share are drawn once; an engine's own marks bear its name."""
    found: dict[str, dict[str, float]] = {}
    for item in run.contestants:
        number = median_round(run, item["key"], case)
        for at, text in run.marks.get((item["key"], case, number or 0), []):
            found.setdefault(text, {})[item["label"]] = at
    out = []
    for text, places in found.items():
        if max(places.values()) - min(places.values()) < 0.5:
            out.append((min(places.values()), text))
        else:
            out += [(at, f"{label} {text}") for label, at in places.items()]
    return sorted(out)


def _draw_marks(marks: list[tuple[float, str]], x: Scale, area: Area, words: bool) -> str:
    out = []
    begin = next((at for at, text in marks if text == OPEN), None)
    if begin is not None:
        end = next((at for at, text in marks if text == CLOSED), x.high)
        out.append(tag("rect", x=x(begin), y=area.top, width=x(end) - x(begin), height=area.height, class_="band"))
    last, level = -1e9, 0
    for at, text in marks:
        out.append(tag("line", x1=x(at), x2=x(at), y1=area.top, y2=area.bottom, class_="mark"))
        if words:
            level = level + 1 if x(at) - last < 150 else 0
            last = x(at)
            late = x(at) > area.right - 130
            out.append(
                tag(
                    "text",
                    escape(text),
                    x=x(at) + (-5 if late else 5),
                    y=area.top + 13 + 15 * level,
                    class_="mark-text end" if late else "mark-text",
                )
            )
    return "".join(out)


def _timeline(chart: Timeline, run: Run) -> Drawn:
    body, notes, top = [], [chart.note] if chart.note else [], 34.0
    strips = [(panel, _lines(run, chart, panel)) for panel in chart.panels]
    times = [p[0] for _, lines in strips for s in lines for p in s.points]
    if not times:
        return _nothing(chart.title, run)
    marks = _marks(run, chart.case)
    x_marks = ticks(0, max(times), 8)
    height = 210 if len(strips) > 1 else 260
    right = WIDTH - svg.room_for([s.label for _, lines in strips for s in lines])
    for number, (panel, lines) in enumerate(strips):
        area = Area(top, height, right=right)
        x = Scale(0, max(times), area.left, area.right)
        y, y_marks = svg.y_scale(lines, area, panel.unit, panel.log)
        body.append(_draw_marks(marks, x, area, number == 0))
        body.append(svg.y_axis(area, y, y_marks, panel.unit, panel.label))
        body += [svg.draw_line(s, x, y) for s in lines]
        body.append(svg.end_labels(lines, x, y, area))
        last = number == len(strips) - 1
        body.append(svg.x_axis(area, x, x_marks, lambda v: short(v), "seconds" if last else ""))
        body.append(svg.hover_data(lines, x, area, panel.unit, "s"))
        keys = {c["key"] for c in run.contestants if c["label"] in {s.label for s in lines}}
        notes += _absent(run, keys, f"No {panel.label} from")
        top = area.bottom + 62
    rounds = max((r for c, k, r in run.samples if k == chart.case), default=1)
    if rounds > 1:
        notes.append(f"Drawn is the round of median speed of each, out of {rounds}.")
    return Drawn(chart.title, svg.picture("".join(body), top - 12, chart.title), tuple(notes))


# ---- curves -----------------------------------------------------------------------------------


def _curve(chart: Curve, run: Run) -> Drawn:
    lines, shown, unit = [], set(), ""
    for item in run.contestants:
        by_series: dict[str, dict[float, list[float]]] = {}
        for f in run.figures:
            wanted = not chart.series or f.series in chart.series
            if f.contestant == item["key"] and f.name == chart.figure and f.x is not None and wanted:
                by_series.setdefault(f.series, {}).setdefault(f.x, []).append(f.value)
                unit = f.unit
        for number, (series, found) in enumerate(by_series.items()):
            xs = sorted(found)
            points = [(x, statistics.median(found[x])) for x in xs]
            color, style = _style(run, item["key"])
            label = f"{item['label']}, {series}" if len(by_series) > 1 else item["label"]
            spreads = [(min(found[x]), max(found[x])) for x in xs]
            lines.append(Line(label, color, points, spreads, style + number, dots=True))
            shown.add(item["key"])
    if not lines:
        return _nothing(chart.title, run)
    area = Area(34, 280, right=WIDTH - svg.room_for([s.label for s in lines]))
    positions = sorted({x for s in lines for x, _ in s.points})
    log = chart.log_x and positions[0] > 0 and positions[-1] > positions[0]
    margin = 0.0 if log or len(positions) > 1 else 1.0
    low = positions[0] if log else 0.0
    x = Scale(low, positions[-1] + margin, area.left + (14 if log else 0), area.right - 6, log)
    y, y_marks = svg.y_scale(lines, area, unit, chart.log_y)
    title = name_of(chart.figure) + (", logarithmic" if chart.log_y else "")
    body = [svg.y_axis(area, y, y_marks, unit, title)]
    body.append(svg.x_axis(area, x, positions, lambda v: short(v), chart.x_label))
    body += [svg.draw_line(s, x, y) for s in lines]
    body += [svg.end_labels(lines, x, y, area), svg.hover_data(lines, x, area, unit, chart.x_label)]
    notes = [chart.note] if chart.note else []
    notes += _absent(run, shown, "Not measured")
    return Drawn(chart.title, svg.picture("".join(body), area.bottom + 50, chart.title), tuple(notes))


# ---- bars -------------------------------------------------------------------------------------

BAR, BAR_GAP, GROUP_GAP = 17, 4, 20
BAR_LEFT = 250
LEGEND_LINE = 20.0


def _bar_rows(chart: Bars, run: Run) -> list[tuple[str, list[tuple[str, list[float]]]]]:
    """Case -> contestant -> values, without the empty."""
    rows = []
    for case in chart.cases or run.cases():
        bars = []
        for item in run.contestants:
            values = list(run.values(item["key"], case, chart.figure).values())
            if values:
                bars.append((item["key"], values))
        if bars:
            rows.append((case, bars))
    return rows


def _bars(chart: Bars, run: Run) -> Drawn:
    rows = _bar_rows(chart, run)
    if not rows:
        return _nothing(chart.title, run)
    unit = next(f.unit for f in run.figures if f.name == chart.figure)
    greatest = max(v for _, bars in rows for _, values in bars for v in values)
    marks = ticks(0, greatest * 1.02 or 1, 5, unit.startswith("bytes"))
    x = Scale(0, marks[-1], BAR_LEFT, WIDTH - 90)
    legend, lines = _legend(run, {key for _, bars in rows for key, _ in bars})
    head = 14 + LEGEND_LINE * lines
    top, body, inner = head + 6, [legend], []
    for case, bars in rows:
        height = len(bars) * (BAR + BAR_GAP) - BAR_GAP
        inner.append(tag("text", escape(case), x=BAR_LEFT - 12, y=top + height / 2 + 5, class_="end case"))
        for key, values in bars:
            inner.append(_bar(run, key, values, x, top, unit))
            top += BAR + BAR_GAP
        top += GROUP_GAP
    bottom = top - GROUP_GAP + 8
    step = marks[1] - marks[0]
    for value in marks:
        kind = "zero" if value == 0 else "grid"
        body.append(tag("line", x1=x(value), x2=x(value), y1=head, y2=bottom, class_=kind))
        body.append(tag("text", escape(tick(value, unit, step)), x=x(value), y=bottom + 18, class_="tick middle"))
    body += inner
    middle = (x.start + x.end) / 2
    body.append(tag("text", escape(name_of(chart.figure)), x=middle, y=bottom + 38, class_="axis-title middle"))
    shown = {key for _, bars in rows for key, _ in bars}
    notes = ([chart.note] if chart.note else []) + _absent(run, shown, "Not measured")
    for case, bars in rows:
        missing = shown - {key for key, _ in bars}
        notes += [f"Missing in {case}: {', '.join(_label(run, k) for k in sorted(missing))}."] if missing else []
    return Drawn(chart.title, svg.picture("".join(body), bottom + 50, chart.title), tuple(notes))


def _bar(run: Run, key: str, values: Sequence[float], x: Scale, top: float, unit: str) -> str:
    found = spread(values)
    assert found is not None
    color, style = _style(run, key)
    end = x(found.median)
    fill = f"fill:var(--{color});opacity:{1 - 0.35 * min(style, 2)}"
    tip = tag("title", escape(f"{_label(run, key)}: {short(found.median, unit)}"))
    out = [tag("rect", tip, x=x(0), y=top, width=max(end - x(0), 1), height=BAR, rx=2, style=fill)]
    place = end
    if found.high > found.low:
        middle = top + BAR / 2
        out.append(
            tag("line", x1=x(found.low), x2=x(found.high), y1=middle, y2=middle, class_="whisker", stroke="var(--ink)")
        )
        place = max(end, x(found.high))
    out.append(tag("text", escape(short(found.median, unit)), x=place + 7, y=top + BAR - 4, class_="tick"))
    return "".join(out)


def _legend(run: Run, shown: set[str]) -> tuple[str, int]:
    """The legend and how many lines it takes."""
    out, left, line = [], float(BAR_LEFT), 0
    for item in run.contestants:
        if item["key"] not in shown:
            continue
        wide = 44 + 7.4 * len(item["label"])
        if left + wide > WIDTH and left > BAR_LEFT:
            left, line = float(BAR_LEFT), line + 1
        top = LEGEND_LINE * line
        color, style = _style(run, item["key"])
        fill = f"fill:var(--{color});opacity:{1 - 0.35 * min(style, 2)}"
        out.append(tag("rect", x=left, y=top + 8, width=12, height=12, rx=2, style=fill))
        out.append(tag("text", escape(item["label"]), x=left + 18, y=top + 19, class_="label"))
        left += wide
    return "".join(out), line + 1


def _label(run: Run, key: str) -> str:
    return next(c["label"] for c in run.contestants if c["key"] == key)


def _nothing(title: str, run: Run) -> Drawn:
    text = tag("text", "Nothing was measured for this picture.", x=LEFT, y=40, class_="absent")
    return Drawn(title, svg.picture(text, 70, title), tuple(_absent(run, set(), "Not measured")))
