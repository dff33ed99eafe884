"""What is shipped for Grafana and Prometheus, read as text: which metrics it names, and how it uses them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

STATUS = "mysql_global_status_"
SETTING = "mysql_global_variables_"
OTHERS = {"mysql_up", "mysql_slave_status_seconds_behind_master"}
"""Of mysqld_exporter itself, and of its collector slave_status."""
COLUMNS = 24


def dashboard(root: Path) -> dict[str, Any]:
    """The dashboard."""
    loaded: dict[str, Any] = json.loads((root / "packaging/grafana/ferrite.json").read_text())
    return loaded


def expressions(root: Path) -> dict[str, str]:
    """The queries of all panels, by panel and letter."""
    panels = dashboard(root)["panels"]
    return {f"{p['title']} {t['refId']}": t["expr"] for p in panels for t in p.get("targets", ())}


def rules(root: Path) -> str:
    """The alert rules, without comments."""
    text = (root / "packaging/prometheus/ferrite.rules.yml").read_text()
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def unknown(text: str, status: set[str], settings: set[str]) -> list[str]:
    """Metrics in a text that the server does not have. All names in lower case, as the exporter writes them."""
    wrong = []
    for name in sorted(set(re.findall(r"\bmysql_\w+", text))):
        if name.startswith(STATUS):
            known = name.removeprefix(STATUS) in status
        elif name.startswith(SETTING):
            known = name.removeprefix(SETTING) in settings
        else:
            known = name in OTHERS
        if not known:
            wrong.append(name)
    return wrong


def misused(text: str, counters: set[str]) -> list[str]:
    """Counters shown as they are, and values shown as rates. `counters`: of the engine, without prefix."""
    wrong = []
    for call, name in re.findall(rf"(rate\(|increase\()?{STATUS}ferrite_(\w+)", text):
        # Whether the metric is there at all is a question to the value itself.
        if bool(call) != (name in counters) and f"unless on (instance) {STATUS}ferrite_{name}" not in text:
            wrong.append(f"{name} is {'a counter' if name in counters else 'a value'}")
    return wrong


def layout(panels: list[dict[str, Any]]) -> list[str]:
    """Panels that share an id or a place, or stick out."""
    wrong = []
    taken: dict[tuple[int, int], str] = {}
    ids = [p["id"] for p in panels]
    if len(set(ids)) != len(ids):
        wrong.append("two panels have one id")
    for panel in panels:
        at, title = panel["gridPos"], panel["title"]
        if at["x"] + at["w"] > COLUMNS:
            wrong.append(f"{title} sticks out")
        for cell in ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])):
            if cell in taken:
                wrong.append(f"{title} covers {taken[cell]}")
                break
            taken[cell] = title
        if panel["type"] != "row" and not all(t["expr"] and t["legendFormat"] for t in panel["targets"]):
            wrong.append(f"{title} has a query without text")
        if any("{{instance}}" not in t["legendFormat"] for t in panel.get("targets", ())):
            wrong.append(f"{title} shows lines of several servers with one name")
    return wrong
