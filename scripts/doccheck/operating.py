"""What an operator sees, in docs/operating/variables.md: settings with their defaults and ranges, status variables with
their kind, the views' columns, the reasons to wait, the parts of memory, the sections of SHOW ENGINE FERRITE STATUS."""

from __future__ import annotations

import re

from doccheck.source import (
    Tree,
    block,
    both_ways,
    function,
    table,
    tables,
    ticked,
    without_comments,
    words,
)

DOCUMENT = "docs/operating/variables.md"
MEMORY = "crates/ferrite-engine/src/introspection/memory.rs"
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
# The plugin's word for "as much as you like".
UNBOUNDED = "max_bytes"


def metrics(tree: Tree) -> dict[str, str]:
    """Status variables without their prefix, and whether each is a counter or a value."""
    kinds = {"counter": "counter", "gauge": "value"}
    return {
        name: kinds[kind]
        for path in tree.under("crates/ferrite-engine/src/", ".rs")
        for kind, name in re.findall(
            r'\b(counter|gauge)\(\s*"(\w+)"', without_comments(tree.text(path))
        )
    }


def _status_faults(tree: Tree, text: str) -> list[str]:
    code = {f"Ferrite_{name}": kind for name, kind in metrics(tree).items()}
    rows = table(text, "variable", "kind", "unit", "description")
    told = {name: row[1] for row in rows for name in ticked(row[0])}
    wrong = both_ways("status variable", set(code), set(told), DOCUMENT)
    return wrong + [
        f"{DOCUMENT}: {name} is a {code[name]}, not a {told[name]}"
        for name in sorted(code.keys() & told.keys())
        if code[name] != told[name]
    ]


def _arguments(call: str) -> list[str]:
    """The arguments of a macro's call, from its opening bracket on."""
    depth, start, found = 0, 1, []
    quoted = False
    for at, char in enumerate(call):
        if char == '"' and call[at - 1] != "\\":
            quoted = not quoted
        elif quoted:
            continue
        elif char in "({":
            depth += 1
        elif char in ")}":
            depth -= 1
        if (char == "," and depth == 1) or depth == 0:
            found.append(call[start:at].strip())
            start = at + 1
        if depth == 0:
            return found
    return found


def _number(text: str) -> int | None:
    """`128 * MiB`, `GiB`, `-1`, `1,000`, `5 MiB`."""
    found = re.fullmatch(r"(-?[\d,]+)?\s*\*?\s*(KiB|MiB|GiB)?", text.strip())
    if not found or not text.strip():
        return None
    return int((found[1] or "1").replace(",", "")) * UNITS.get(found[2], 1)


def _settings(tree: Tree) -> dict[str, dict[str, object]]:
    """Each system variable: scope, type, default, lowest, highest, step, names, whether it is read-only."""
    source = without_comments(tree.text("plugin/ferrite_vars.cc"))
    lists = dict(re.findall(r"\*(\w+)_names\[\] = \{([^}]*)\}", source))
    found: dict[str, dict[str, object]] = {}
    for call in re.finditer(r"\bMYSQL_(SYS|THD)VAR_(\w+)(?=\()", source):
        arguments = _arguments(source[call.end() :])
        name, last = arguments[0], arguments[-1]
        first = 5 + (call[1] == "SYS")
        values = [_number(text) for text in arguments[first:]] + [None] * 4
        names: list[str] = []
        if call[2] == "ENUM":
            for key, words in lists.items():
                if key in last:
                    names = re.findall(r'"(\w+)"', words)
        found[f"ferrite_{name}"] = {
            "scope": "global" if call[1] == "SYS" else "session, global",
            "type": call[2],
            "default": values[0],
            "low": values[1],
            "high": None if UNBOUNDED in arguments else values[2],
            "step": values[3],
            "names": names,
            "updates": arguments[first - 1] != "nullptr",
            "read_only": "PLUGIN_VAR_READONLY" in arguments[1 + (call[1] == "SYS")],
        }
    return found


def _default_told(cell: str, setting: dict[str, object]) -> bool:
    value = setting["default"]
    word = cell.split(" (")[0]
    if setting["type"] == "BOOL":
        return word == ("ON" if value else "OFF")
    if setting["names"]:
        names = setting["names"]
        assert isinstance(names, list) and isinstance(value, int)
        return word == names[value]
    return _number(word) == value


def _range_told(cell: str, setting: dict[str, object]) -> bool:
    low, high, step = setting["low"], setting["high"], setting["step"]
    if setting["type"] == "BOOL":
        return cell in ("", "ON, OFF")
    if setting["type"] == "STR":
        return cell == ""
    if setting["names"]:
        return cell.split(", ") == setting["names"]
    if found := re.fullmatch(r"from (.*?)(?:, steps of (.*))?", cell):
        told = (_number(found[1]), None, _number(found[2]) if found[2] else 0)
        return told == (low, high, step)
    if found := re.fullmatch(r"(\S+) to (\S+)", cell):
        return (_number(found[1]), _number(found[2])) == (low, high)
    listed = [_number(part) for part in cell.split(", ")]
    return (
        isinstance(low, int)
        and isinstance(high, int)
        and listed == list(range(low, high + 1))
    )


def _change_told(
    cell: str, name: str, setting: dict[str, object], refused: str
) -> bool:
    if setting["read_only"]:
        return cell == "no (read-only)"
    # What the plugin keeps to itself the core is not asked about.
    if setting["updates"] and f'"{name.removeprefix("ferrite_")}"' in refused:
        return cell == "no"
    return cell == "yes" or (cell.startswith("see ") and bool(setting["names"]))


def _setting_faults(tree: Tree, text: str) -> list[str]:
    columns = ("variable", "scope", "default", "range", "dynamic", "description")
    told = {name: row for row in table(text, *columns) for name in ticked(row[0])}
    code = _settings(tree)
    wrong = both_ways("system variable", set(code), set(told), DOCUMENT)
    refused = _refused_at_run_time(tree)
    for name in sorted(code.keys() & told.keys()):
        setting, row = code[name], told[name]
        fits = {
            "scope": row[1] == setting["scope"],
            "default": _default_told(row[2], setting),
            "range": _range_told(row[3], setting),
            "dynamic": _change_told(row[4], name, setting, refused),
        }
        for column, fit in fits.items():
            if not fit:
                cell = row[columns.index(column)]
                wrong.append(f"{DOCUMENT}: {name}: {column} is not {cell!r}: {setting}")
    return wrong


def _refused_at_run_time(tree: Tree) -> str:
    """The names that the engine refuses to change, as they stand in its source."""
    for path in tree.under("crates/ferrite-engine/src/", ".rs"):
        source = without_comments(tree.text(path))
        if found := re.search(
            r'((?:\s*\|?\s*"\w+")+)\s*=>\s*\{\s*return Err\(Error::BadConfig', source
        ):
            return found[1]
    return ""


def _columns(tree: Tree) -> dict[str, list[str]]:
    """The views of information_schema and their columns."""
    found: dict[str, list[str]] = {}
    plugin = "".join(
        without_comments(tree.text(path)) for path in tree.under("plugin/", ".cc")
    )
    inits = dict(
        re.findall(r'FERRITE_I_S_PLUGIN\(\s*"(\w+)",(?:[^()])*?,\s*(\w+)\)', plugin)
    )
    for view, init in inits.items():
        at = re.search(rf"\bint {init}\(", plugin)
        assert at, init
        fields = re.search(r"Show::(\w+)", block(plugin, at.start()))
        assert fields, init
        start = plugin.index(f"{fields[1]}[] =")
        found[view] = re.findall(r'\bColumn\("(\w+)"', block(plugin, start))
    return found


def _view_faults(tree: Tree, text: str) -> list[str]:
    told: dict[str, set[str]] = {}
    for above, rows in tables(text):
        head = above.lstrip("# ")
        if rows[0] == ["column", "description"]:
            cells = [name for row in rows[1:] for name in ticked(row[0])]
            told[head] = set(cells)
    code = _columns(tree)
    wrong = both_ways("view", set(code), set(told), DOCUMENT)
    for view in sorted(code.keys() & told.keys()):
        what = f"column of {view}"
        wrong += both_ways(what, set(code[view]), told[view], DOCUMENT)
    return wrong


def _reason_faults(tree: Tree, text: str) -> list[str]:
    code = set(re.findall(r'=> "([\w ]+)"', _named(tree, "Reason::name")))
    rows = table(text, "reason", "who waits for what")
    told = {name for row in rows for name in row[0].split(", ")}
    return both_ways("reason to wait", code, told, DOCUMENT)


def _part_faults(tree: Tree, text: str) -> list[str]:
    """What FERRITE_MEMORY has a row for."""
    source = without_comments(tree.text(MEMORY))
    code = set(re.findall(r'\bpart\(\s*"([\w ]+)"', source))
    rows = table(text, "part", "depends on")
    told = {name for row in rows for name in row[0].split(", ")}
    return both_ways("part of memory", code, told, DOCUMENT)


def _named(tree: Tree, name: str) -> str:
    """A function's body with its strings in it."""
    kind, _, plain = name.rpartition("::")
    for path in tree.under("crates/", ".rs"):
        if f"impl {kind}" not in tree.text(path):
            continue
        source = without_comments(tree.text(path))
        if function(tree, name, path):
            at = source.index("{", source.index(f"impl {kind}"))
            return block(source, source.index(f"fn {plain}(", at))
    return ""


def _section_faults(tree: Tree, text: str) -> list[str]:
    code = set(re.findall(r'\(\s*"([A-Z/ ]+)",', _named(tree, "Engine::sections")))
    rows = table(text, "section", "content")
    told = {name for row in rows for name in ticked(row[0])}
    return both_ways("section", code, told, DOCUMENT)


def _mentioned(tree: Tree) -> list[str]:
    """Settings, status variables and views that other pages for users name."""
    known = set(_settings(tree)) | {f"Ferrite_{name}" for name in metrics(tree)}
    known |= set(_columns(tree))
    # Plugins of other kinds in the same library.
    header = tree.text("plugin/ferrite_replace_engines.h")
    known |= set(re.findall(r'_PLUGIN,[^"]*"(FERRITE_\w+)"', header))
    pages = [p for p in tree.paths if re.match(r"README\.md$|docs/[^/]+\.md$", p)]
    pages += tree.under("docs/operating/", ".md") + tree.under("docs/measured/", ".md")
    scripts = tree.under("scripts/", ".sh") + tree.under("packaging/", "/prerm")
    for script in scripts:  # variables of the environment
        known |= {word for word in words(tree, script) if word.startswith("FERRITE_")}
    for source in (
        "tables.py",
        "guards.py",
    ):  # databases and triggers of ./ferrite migrate
        known |= set(
            re.findall(
                r'"(ferrite_migrate\w*)"',
                tree.text(f"migrate/ferrite_migrate/{source}"),
            )
        )
    return [
        f"{page}: {name} is no setting, status variable or view"
        for page in pages
        for text in ticked(tree.text(page))
        for name in re.findall(r"(?<![\w/.@#-])(?:ferrite|Ferrite|FERRITE)_\w+", text)
        if name not in known
    ]


def wrong(tree: Tree) -> list[str]:
    """What the page of settings, status variables and views says otherwise than the code."""
    text = tree.text(DOCUMENT)
    return (
        _setting_faults(tree, text)
        + _status_faults(tree, text)
        + _view_faults(tree, text)
        + _reason_faults(tree, text)
        + _part_faults(tree, text)
        + _section_faults(tree, text)
        + _mentioned(tree)
    )
