"""SVG from scratch: elements, scales, a plot area with axes, labels that keep clear of each other.

Colours are CSS variables (`--ferrite`, `--ink` ...), so that a picture follows the page's light or dark colours; a picture
saved on its own carries the same variables with it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from ferrite_bench.report.units import log_ticks, short, tick, ticks

WIDTH = 960
LEFT, RIGHT = 74, 110
VARIABLES = (Path(__file__).parent / "colors.css").read_text(encoding="utf-8")
DASHES = ("", "7 4", "2 3", "9 3 2 3")


def tag(name: str, text: str = "", **attributes: object) -> str:
    """One element; `class_` stands for class, underscores for hyphens."""
    parts = [f'{k.rstrip("_").replace("_", "-")}="{escape(_number(v), quote=True)}"' for k, v in attributes.items()]
    head = " ".join([name, *parts])
    return f"<{head}>{text}</{name}>" if text else f"<{head}/>"


def _number(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Scale:
    """From values to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        if self.log:
            value, low, high = math.log(max(value, self.low)), math.log(self.low), math.log(self.high)
        else:
            low, high = self.low, self.high
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)


@dataclass
class Line:
    """One line of a plot."""

    label: str
    color: str
    points: list[tuple[float, float]]
    low_high: list[tuple[float, float]] = field(default_factory=list)
    style: int = 0
    dots: bool = False


@dataclass(frozen=True)
class Area:
    """Where a plot stands in its picture."""

    top: float
    height: float
    left: float = LEFT
    right: float = WIDTH - RIGHT

    @property
    def bottom(self) -> float:
        """The x axis."""
        return self.top + self.height


def room_for(labels: Sequence[str]) -> float:
    """Width that names at the ends of lines take."""
    return max(RIGHT, max((len(x) for x in labels), default=0) * 7.3 + 34)


def y_scale(lines: Sequence[Line], area: Area, unit: str, log: bool) -> tuple[Scale, list[float]]:
    """A scale that holds every point, and its ticks."""
    values = [y for line in lines for _, y in line.points] + [v for line in lines for lh in line.low_high for v in lh]
    positive = [v for v in values if v > 0]
    if log and positive:
        marks = log_ticks(min(positive), max(positive))
        return Scale(marks[0], marks[-1], area.bottom, area.top, True), marks
    top = max(values, default=1.0) or 1.0
    marks = ticks(0, top * 1.04, 4, unit.startswith("bytes"))
    return Scale(0, marks[-1], area.bottom, area.top), marks


def y_axis(area: Area, scale: Scale, marks: Sequence[float], unit: str, title: str) -> str:
    """Grid lines, their values, and what they are."""
    out = [tag("text", escape(title), x=area.left, y=area.top - 12, class_="axis-title")]
    step = marks[1] - marks[0] if len(marks) > 1 and not scale.log else min(marks, default=1)
    for value in marks:
        y = scale(value)
        out.append(tag("line", x1=area.left, x2=area.right, y1=y, y2=y, class_="zero" if value == 0 else "grid"))
        out.append(tag("text", escape(tick(value, unit, step)), x=area.left - 8, y=y + 4, class_="tick end"))
    return "".join(out)


def x_axis(area: Area, scale: Scale, marks: Sequence[float], form: Callable[[float], str], title: str) -> str:
    """Values below the plot, and what they are; values that would touch each other are left out."""
    out, last = [], -1e9
    for value in marks:
        x = scale(value)
        if x > area.right + 1 or x - last < 34:
            continue
        last = x
        out.append(tag("line", x1=x, x2=x, y1=area.bottom, y2=area.bottom + 4, class_="zero"))
        out.append(tag("text", escape(form(value)), x=x, y=area.bottom + 18, class_="tick middle"))
    if title:
        middle = (area.left + area.right) / 2
        out.append(tag("text", escape(title), x=middle, y=area.bottom + 38, class_="axis-title middle"))
    return "".join(out)


def draw_line(line: Line, x: Scale, y: Scale) -> str:
    """The line itself, broken where seconds are missing, with whiskers and dots if it has them."""
    color = f"var(--{line.color})"
    path, previous = [], None
    gap = 1.7 if not line.dots else 1e18
    for px, py in line.points:
        move = previous is None or px - previous > gap
        path.append(f"{'M' if move else 'L'}{x(px):.1f} {y(py):.1f}")
        previous = px
    dash = {"stroke_dasharray": DASHES[line.style % len(DASHES)]} if line.style else {}
    out = [tag("path", d="".join(path), class_="line", stroke=color, **dash)] if path else []
    for (px, _), (low, high) in zip(line.points, line.low_high, strict=False):
        if high > low:
            out.append(tag("line", x1=x(px), x2=x(px), y1=y(low), y2=y(high), class_="whisker", stroke=color))
    if line.dots:
        out += [tag("circle", cx=x(px), cy=y(py), r=4, fill=color, class_="dot") for px, py in line.points]
    return "".join(out)


def end_labels(lines: Sequence[Line], x: Scale, y: Scale, area: Area, gap: float = 17) -> str:
    """Names at the ends of the lines, pushed apart, each tied to its end."""
    wanted = sorted(((y(s.points[-1][1]), s) for s in lines if s.points), key=lambda pair: pair[0])
    places: list[float] = []
    for at, _ in wanted:
        places.append(max(at, places[-1] + gap) if places else max(at, area.top + 4))
    over = places[-1] - (area.bottom + 4) if places else 0
    if over > 0:
        places = [p - over for p in places]
        for i in range(len(places) - 2, -1, -1):
            places[i] = min(places[i], places[i + 1] - gap)
    out = []
    for (at, line), place in zip(wanted, places, strict=True):
        color, start = f"var(--{line.color})", x(line.points[-1][0])
        knee = f"M{start + 5:.1f} {at:.1f}L{area.right + 10:.1f} {place:.1f}H{area.right + 18:.1f}"
        out.append(tag("path", d=knee, class_="tie", stroke=color))
        out.append(
            tag("text", escape(line.label), x=area.right + 22, y=place + 4, class_="label", style=f"fill:{color}")
        )
    return "".join(out)


def hover_data(lines: Sequence[Line], x: Scale, area: Area, unit: str, x_unit: str) -> str:
    """What the page's script needs to tell values under the pointer."""
    data = {
        "left": area.left,
        "right": area.right,
        "low": x.low,
        "high": x.high,
        "log": x.log,
        "unit": x_unit,
        "lines": [
            {"label": s.label, "color": s.color, "points": [[round(a, 3), b, short(b, unit)] for a, b in s.points]}
            for s in lines
        ],
    }
    return tag(
        "rect",
        x=area.left,
        y=area.top,
        width=area.right - area.left,
        height=area.height,
        class_="hover",
        data_plot=json.dumps(data, separators=(",", ":")),
    )


def picture(body: str, height: float, title: str) -> str:
    """A picture for the page."""
    head = (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" class="picture" aria-label="{escape(title, quote=True)}">'
    )
    return f"{head}<title>{escape(title)}</title>{body}</svg>"


def standalone(svg: str, title: str, foot: str) -> str:
    """The same picture as a file of its own: with its colours, a background, its title and where it comes from."""
    style = f"<style>{VARIABLES}</style>"
    head, rest = svg.split(">", 1)
    box = head.split('viewBox="')[1].split('"')[0].split()
    height = float(box[3]) + 44 + 26
    head = head.replace(f'viewBox="{" ".join(box)}"', f'viewBox="0 -44 {box[2]} {height:.0f}"')
    head = head.replace("<svg ", f'<svg xmlns="http://www.w3.org/2000/svg" width="{box[2]}" height="{height:.0f}" ')
    ground = tag("rect", x=0, y=-44, width=box[2], height=height, class_="ground")
    words = tag("text", escape(title), x=LEFT, y=-16, class_="title")
    origin = tag("text", escape(foot), x=LEFT, y=float(box[3]) + 12, class_="tick")
    return f"{head}>{style}{ground}{words}{origin}{rest}\n"
