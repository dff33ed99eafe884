"""What lies on disk, in docs/internals/file_format.md: numbers, places and widths of fields, as the codecs have them.

A marker above a table or a text says what it is checked against:

    <!-- offsets: F in FILE -->         columns offset and size, beside the constant places that function F uses
    <!-- offsets: FILE -->              the same, the whole file
    <!-- reads: F in FILE -->           widths in their order, beside F's reads, those of functions it calls within them
    <!-- fields: F in FILE -->          each field once, in any order, beside F's reads
    <!-- sizes: F in FILE -->           rows of page operations, beside the lengths in F
    <!-- sizes: ROW A + B, ROW A -->    of a row the fixed part, and each of what is repeated, beside constants, numbers,
                                        or the longest array of a function
    <!-- numbers: FILE -->              every number of one byte in FILE stands there as `N NAME`, and the other way round
    <!-- bits: A B in FILE -->          widths of bit fields
"""

from __future__ import annotations

import re
from collections import Counter

from doccheck.source import (
    Tree,
    both_ways,
    function,
    table,
    ticked,
    without_comments,
    without_tests,
)

DOCUMENT = "docs/internals/file_format.md"
_WIDTH = re.compile(r"\b([ui](?:8|16|32|48|64))\b|\b(\d+) bytes\b")
_CRATES = [
    f"crates/ferrite-{name}/src/"
    for name in ["types", "store", "redo", "tree", "engine"]
]


# ---- the code ----


def _constants(source: str) -> dict[str, int]:
    """Constants whose values are plain numbers, or sums, products and shifts of such."""
    texts = dict(re.findall(r"\bconst (\w+): [ui]\w+ =\s*([^;]+);", source))
    known: dict[str, int] = {}
    for _ in range(4):
        for name, text in texts.items():
            plain = re.sub(
                r"\b(\d[\da-fA-Fx_]*?)_?[ui](?:8|16|32|64|size)\b", r"\1", text
            )
            plain = re.sub(r" as \w+|(?<=[\da-f])_(?=[\da-f])", "", plain)
            plain = re.sub(
                r"\b(?:\w+::)*([A-Z]\w*)\b", lambda m: str(known.get(m[1], m[1])), plain
            )
            plain = plain.replace("/", "//")
            if re.fullmatch(r"[\d\sxa-f+*/()<-]+", plain):
                known[name] = int(eval(plain, {}))
    return known


def _source(tree: Tree, place: str) -> str:
    files = tree.find(place)
    return without_comments(without_tests(tree.text(files[0]))) if files else ""


def _accesses(source: str, whole: str) -> set[tuple[int, int]]:
    """(offset, size) of every access at a place that is a constant of the file."""
    constants = _constants(whole)

    def value(text: str) -> int | None:
        text = text.strip()
        return int(text) if text.isdigit() else constants.get(text)

    ranges = re.findall(r"const (\w+): [\w:]*Range<usize> = (\w+\.\.\w+);", whole)
    for name, span in ranges:
        source = source.replace(f"[{name}]", f"[{span}]")
    # Single bytes that are put together to one number.
    byte = r"\w+\[\d+\]"
    for bytes_read in re.findall(rf"\[({byte}(?:, {byte})+)\]", source):
        places = [int(n) for n in re.findall(r"\[(\d+)\]", bytes_read)]
        span = f"x[{places[0]}..{places[-1] + 1}]"
        source = source.replace(bytes_read, span)
    found: set[tuple[int, int]] = set()
    for bits, at in re.findall(
        r"\b(?:put|get|le|num)_?u?(\d+)\([^,()]*, (\w+)", source
    ):
        if (place := value(at)) is not None:
            found.add((place, int(bits) // 8))
    for bits, at in re.findall(r"\bu(\d+)_at\((\w+)\)", source):
        if (place := value(at)) is not None:
            found.add((place, int(bits) // 8))
    for first, end in re.findall(r"\w\[(\w+)(?:\.\.(\w+))?\]", source):
        low = value(first)
        high = value(end) if end else (low or 0) + 1
        if low is not None and high is not None:
            found.add((low, high - low))
    return found


def _reads(tree: Tree, name: str, place: str, depth: int = 0) -> list[str]:
    """Widths in the order in which a function reads them; of functions of its file that it calls as well."""
    body = function(tree, name, place)
    body = body[body.find("{") + 1 :]
    widths = []
    for read, called in re.findall(
        r"\.(u8|u16|u32|u48|u64|array|bytes16|bytes32|bytes64)\(\)|\b(?:Self::)?([a-z_]\w*)\(",
        body,
    ):
        if read:
            widths.append(read.replace("bytes", "u"))
        elif depth < 4 and called != name.rpartition("::")[2]:
            widths += _reads(tree, called, place, depth + 1) if place else []
    return widths


# ---- the document ----


def _widths(text: str) -> list[str]:
    return [
        (kind.replace("i", "u") if kind else "array")
        for kind, _ in _WIDTH.findall(re.sub(r"`[^`]*`", "", text))
    ]


def _bytes(text: str) -> int:
    return sum(
        int(kind[1:]) // 8 if kind else int(n) for kind, n in _WIDTH.findall(text)
    )


def _marked(text: str) -> list[tuple[str, str, str]]:
    """(kind, argument, section) of every marker; the section ends with its table or text."""
    found, markers = [], []
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if marker := re.fullmatch(r"<!-- (\w+): (.*) -->", line):
            markers.append((marker[1], marker[2]))
        elif line.strip() and markers:
            end = at
            fence = line.startswith("```")
            while end < len(lines) and (lines[end].strip() or fence):
                end += 1
                if fence and end > at and lines[end].startswith("```"):
                    break
            section = "\n".join(lines[at:end])
            found += [(kind, argument, section) for kind, argument in markers]
            markers = []
    return found


def _rows(section: str) -> list[list[str]]:
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[c.strip() for c in line.strip("|").split("|")] for line in lines[2:]]


def _in(argument: str) -> tuple[str, str]:
    name, _, place = argument.partition(" in ")
    return (name, place) if place else ("", name)


# ---- the checks ----


def _offsets(tree: Tree, argument: str, section: str) -> list[str]:
    names, place = _in(argument)
    whole = _source(tree, place)
    source = (
        "".join(function(tree, n, place) for n in names.split(", ")) if names else whole
    )
    if not source:
        return ["is not in the code"]
    used = _accesses(source, whole)
    rows = [(int(r[0]), int(r[1] or 0), r[2]) for r in _rows(section) if r[0].isdigit()]
    wrong = [
        f"{rows[i][2]!r} does not begin where the field before it ends"
        for i in range(1, len(rows))
        if rows[i - 1][0] + rows[i - 1][1] != rows[i][0]
    ]
    starts = {at for at, _, _ in rows}
    ends = {at + size for at, size, _ in rows}
    # What goes on to the end of the block is padding, or all that a checksum covers.
    within = [u for u in used if u[0] + u[1] <= max(ends)]
    wrong += [
        f"the code uses {size} bytes at {at}, which is no field there"
        for at, size in sorted(within)
        if at not in starts or at + size not in ends
    ]
    for at, size, field in rows:
        touched = any(a <= at and at + size <= a + n for a, n in within)
        if (
            size
            and not touched
            and not re.search(r"\bzeros?\b|reserved|payload", field)
        ):
            wrong.append(f"{field!r} at {at} is not in the code")
    return wrong


def _reads_faults(tree: Tree, argument: str, section: str) -> list[str]:
    name, place = _in(argument)
    code = _reads(tree, name, place)
    told = _widths(section)
    return (
        []
        if code and code == told
        else [f"reads {' '.join(code)}, the text has {' '.join(told)}"]
    )


def _fields_faults(tree: Tree, argument: str, section: str) -> list[str]:
    name, place = _in(argument)
    code = Counter(_reads(tree, name, place))
    fields = set(re.findall(r"(?:^|[|,:]) *([\w ]+? [ui]\d+)\b", section, re.MULTILINE))
    told = Counter(w for field in fields for w in _widths(field))
    return (
        []
        if code and code == told
        else [f"reads {dict(code)}, the fields are {dict(told)}"]
    )


def _fixed_and_each(text: str) -> tuple[int, int]:
    fixed, _, each = text.partition("each")
    return _bytes(fixed), _bytes(each)


def _size_of(tree: Tree, name: str) -> int | None:
    """A number, a constant of the codecs, or the longest array that a function has."""
    if name.isdigit():
        return int(name)
    for crate in _CRATES:
        for path in tree.under(crate, ".rs"):
            source = without_tests(tree.text(path))
            if f"const {name}" not in source and f"fn {name}" not in source:
                continue
            if re.search(rf"\bconst {name}\b", source):
                return _constants(without_comments(source)).get(name)
            if re.search(rf"\bfn {name}\b", source):
                body = function(tree, name, path)
                array = r"\[(?:u8|0|0u8); (\d+)\]|len\(\) != (\d+)|get\(\.\.(\d+)\)"
                return max(
                    (int("".join(n)) for n in re.findall(array, body)), default=None
                )
    return None


def _sizes_faults(tree: Tree, argument: str, section: str) -> list[str]:
    told = {}
    for row in _rows(section):
        name = re.findall(r"[A-Z_]{2,}", " ".join(row[:2]))
        told[name[0] if name else row[0]] = _fixed_and_each(" ".join(row[1:]))
    code: dict[str, tuple[int | None, ...]] = {}
    if " in " in argument:
        name, place = _in(argument)
        arms = re.split(r"\n\s*(?=[A-Z_]+ =>|_ =>)", function(tree, name, place))
        for arm in arms[1:]:
            word = arm.split()[0]
            ends = re.findall(r"(?:=> |\n\s+)(\d+)(?: \+ (\d+) \*)?", arm)
            if word != "_" and ends:
                code[word] = (int(ends[-1][0]), int(ends[-1][1] or 0))
        missing = both_ways("operation", set(code), set(told), DOCUMENT)
        if missing:
            return missing
    else:
        for part in argument.split(", "):
            word, *terms = re.findall(r"\w+", part)
            sizes = [_size_of(tree, term) for term in terms]
            code[word] = (sizes[0], sizes[1] if len(sizes) > 1 else 0)
    return [
        f"{word} has {size[0]} bytes and {size[1]} for each, the text {told.get(word)}"
        for word, size in code.items()
        if told.get(word) != size
    ]


def _numbers_faults(tree: Tree, place: str, section: str) -> list[str]:
    name, place = _in(place)
    source = _source(tree, place)
    if name:
        at = source.find(f"mod {name} {{")
        source = source[at : source.find("\n}", at)] if at >= 0 else ""
    names = set(re.findall(r"\bconst (\w+): u8 = \d+;", source)) - {"VERSION"}
    values = _constants(source)
    code = {
        f"{values[n]} {n}"
        for n in names
        if not n.endswith("_VERSION") or n.startswith("HAS_")
    }
    plain = re.sub(r"[|`]", " ", section)
    told = {
        f"{n} {w}" for n, w in re.findall(r"\b(\d+)\s+([A-Z][A-Z_]+)\b(?!-)", plain)
    }
    return both_ways("number", code, told, DOCUMENT) if code else ["has no numbers"]


def _bits_faults(tree: Tree, argument: str, section: str) -> list[str]:
    names, place = _in(argument)
    known = _constants(_source(tree, place))
    code = [known.get(name) for name in names.split()]
    spans = [row[0].split("..") for row in _rows(section)]
    told = [int(high) - int(low) for low, high in spans][: len(code)]
    return [] if code == told else [f"has {code} bits, the table {told}"]


_CHECKS = {
    "offsets": _offsets,
    "reads": _reads_faults,
    "fields": _fields_faults,
    "sizes": _sizes_faults,
    "numbers": _numbers_faults,
    "bits": _bits_faults,
}


def _constant_faults(tree: Tree, text: str) -> list[str]:
    """The table of constants: each has its value, and no version or magic number is missing."""
    wrong, told = [], set()
    for row in table(text, "constant", "value", "where"):
        (name,), (place,) = ticked(row[0]), ticked(row[2])
        files = tree.find(place)
        value = _constants(_source(tree, place)).get(name)
        told |= {f"{name} of {path}" for path in files}
        shown = row[1].replace(",", "")
        if ticked(shown):
            letters = ticked(shown)[0]
            fits = value == int.from_bytes(letters.encode(), "little")
        else:
            fits = shown.isdigit() and value == int(shown)
        if not fits:
            wrong.append(f"{DOCUMENT}: {name} in {place} is {value}, not {row[1]}")
    code = {
        f"{name} of {path}"
        for crate in _CRATES
        for path in tree.under(crate, ".rs")
        for name in re.findall(
            r"\bconst ((?!HAS_)\w*(?:VERSION|MAGIC)\w*): u\d+",
            without_comments(without_tests(tree.text(path))),
        )
    }
    missing = [
        f"{DOCUMENT}: constant {what} is not in it" for what in sorted(code - told)
    ]
    return wrong + missing


def _file_faults(tree: Tree, text: str) -> list[str]:
    """Each file of the database is one that the code names."""
    strings: set[str] = set()
    for path in tree.under("crates/", ".rs"):
        strings |= set(re.findall(r'"([^"\s]+)"', without_comments(tree.text(path))))
    wrong = []
    for row in table(text, "file", "holds", "code"):
        for name in ticked(row[0]):
            start = re.split(r"N|\d", name)[0]
            if not any(
                s == name or (start != name and s.startswith(start)) for s in strings
            ):
                wrong.append(f"{DOCUMENT}: no file is called {name}")
    return wrong


# What is planted below each kind of marker, by the proof that the check sees it.
_PLANTS = {
    "offsets": (r"(\| \d+ \| \d)(\d* \|)", r"\g<1>7\2"),
    "reads": r"\b[ui](8|16|32|64)\b",
    "fields": r"\b[ui](8|16|32|64)\b(?=[^|]*\|$)",
    "sizes": r"(?<=\| )([\w ]+ u16|[\w ]+ u32|txn u48|[\w ]+ i64)\b",
    "numbers": (r"\b(\d+)((?: |\s*\| )[A-Z]{2}[A-Z_]{2,}\b(?!-))", r"9\1\2"),
    "bits": (r"\.\.(\d)", r"..9\1"),
}


def unseen(tree: Tree) -> list[str]:
    """Markers below which a planted drift is not seen."""
    blind = []
    for kind, argument, section in _marked(tree.text(DOCUMENT)):
        plant = _PLANTS.get(kind, "")
        pattern, other = (
            plant if isinstance(plant, tuple) else (plant, "planted u48 u48")
        )
        planted = re.sub(pattern, other, section, count=1, flags=re.MULTILINE)
        if planted == section or not _CHECKS[kind](tree, argument, planted):
            blind.append(f"{DOCUMENT}: nothing is seen below {kind}: {argument}")
    return blind


def wrong(tree: Tree) -> list[str]:
    """What the page of formats says otherwise than the code."""
    text = tree.text(DOCUMENT)
    found = _constant_faults(tree, text) + _file_faults(tree, text)
    for kind, argument, section in _marked(text):
        if kind not in _CHECKS:
            found.append(f"{DOCUMENT}: {kind} is no check")
            continue
        for fault in _CHECKS[kind](tree, argument, section):
            found.append(
                fault
                if fault.startswith(DOCUMENT)
                else f"{DOCUMENT}: {argument}: {fault}"
            )
    return found
