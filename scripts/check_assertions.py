"""Counts the assertions of the crates on which data depends, and fails when they become fewer.

What counts: `assert!` and its relatives, `debug_assert!` and its relatives (and both in `const` blocks), over the
functions of a crate with a body, tests left out. `FLOOR` is what each crate holds, in assertions per function; a
change that goes below it either asserts what it relies on or lowers the floor with its reason.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FLOOR = {
    # Foreign keys came with fewer: most of their functions look something up and rely on nothing.
    "ferrite-engine": 0.42,
    "ferrite-tree": 0.5,
    "ferrite-txn": 0.5,
    "ferrite-lock": 0.5,
    "ferrite-store": 0.5,
    "ferrite-buffer": 0.5,
    "ferrite-redo": 0.5,
}
ASSERTION = re.compile(r"\b(?:debug_)?assert(?:_eq|_ne)?!\s*[(\[{]")
FUNCTION = re.compile(r"\bfn\s+\w+")


def _production(source: str) -> str:
    """The source without comments, texts and what stands below `#[cfg(test)]` at the left edge."""
    source = re.sub(r"//.*", "", source)
    source = re.sub(r'"(?:[^"\\]|\\.)*"', '""', source, flags=re.DOTALL)
    return re.split(
        r"^#\[cfg\((?:all\()?test\b[^\n]*\]\n(?:#\[[^\n]*\n)*mod \w+ \{",
        source,
        flags=re.MULTILINE,
    )[0]


def _is_test(path: Path, crate: Path) -> bool:
    """A file that only tests use: tests.rs, *_tests.rs, testing.rs, or one in a folder `tests`."""
    relative = path.relative_to(crate)
    return (
        path.stem in {"tests", "testing"}
        or path.stem.endswith("_tests")
        or "tests" in relative.parts[:-1]
    )


def _has_body(source: str, at: int) -> bool:
    """Whether the function whose head begins at `at` has a body: `{` comes before a `;` that no bracket holds."""
    depth = 0
    for letter in source[at:]:
        if letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
        elif depth == 0 and letter in "{;":
            return letter == "{"
    return False


def count(source: str) -> tuple[int, int]:
    """Assertions and functions with a body in one file's source."""
    production = _production(source)
    functions = sum(
        _has_body(production, f.end()) for f in FUNCTION.finditer(production)
    )
    return len(ASSERTION.findall(production)), functions


def _of_crate(name: str) -> tuple[int, int, list[tuple[Path, int, int]]]:
    crate = ROOT / "crates" / name / "src"
    files = []
    for path in sorted(crate.rglob("*.rs")):
        if not _is_test(path, crate):
            files.append((path, *count(path.read_text())))
    return sum(f[1] for f in files), sum(f[2] for f in files), files


def _self_test() -> None:
    """The counter counts what it says, and nothing in tests or comments."""
    source = (
        'fn a(x: [u8; 2]) { assert!(x); debug_assert_eq!(1, 1, "assert!(no)"); }\n// assert!(no)\n'
        "trait T { fn b(&self, x: [u8; 2]); }\n#[cfg(test)]\nmod tests {\n fn c() { assert!(true); }\n}\n"
    )
    if count(source) != (2, 1):
        raise SystemExit(f"check_assertions.py counts wrongly: {count(source)}")


def main() -> None:
    """Prints the table (each file with `--files`) and fails where a crate is below its floor."""
    _self_test()
    below = []
    for name, floor in FLOOR.items():
        assertions, functions, files = _of_crate(name)
        ratio = assertions / functions
        print(
            f"{name:16} {assertions:5} assertions {functions:5} functions {ratio:5.2f} (floor {floor})"
        )
        if "--files" in sys.argv:
            for path, a, f in files:
                print(f"    {path.relative_to(ROOT)!s:64} {a:4} {f:4}")
        if ratio < floor:
            below.append(name)
    if below:
        raise SystemExit(
            f"fewer assertions per function than the floor: {', '.join(below)}"
        )


if __name__ == "__main__":
    main()
