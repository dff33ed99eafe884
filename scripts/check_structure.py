"""Checks the structure that the imports draw: no circle between modules, no crate edge that ARCHITECTURE.md lacks, no
dependency that nothing uses.

A module is what stands directly under a crate's `src` or in a Python package: a file, or a folder with all that is in
it. An import in a test is none. Circles that are known are listed below, to be taken apart one after the other: one
that has grown, or is gone, fails as well as a new one, so that the list stays true.

Documents that name what is not there fail with it: see `check_docs.py`.
"""

from __future__ import annotations

import re
import sys
import tempfile
import tomllib
from pathlib import Path

import check_docs

Graph = dict[str, set[str]]

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ["bench/ferrite_bench"]
KNOWN: dict[str, list[str]] = {
    "ferrite-sync": ["futex hook latch nowait random sim thread time"],
    "ferrite-txn": ["published seen system"],
}


def _without_tests(source: str) -> str:
    """The source without comments and without what stands below `#[cfg(test)] mod tests {`."""
    return re.sub(r"//.*", "", source.split("\n#[cfg(test)]\nmod tests {")[0])


def _names_used(source: str) -> set[str]:
    """First names of paths that begin with `crate::`."""
    names = set(re.findall(r"\bcrate::(\w+)", source))
    for block in re.findall(r"\bcrate::\{(.*?)\};", source, re.DOTALL):
        names |= set(re.findall(r"(?:^|[,\s{])(\w+)", block))
    return names


def _exported(library: str) -> dict[str, str]:
    """What lib.rs gives out under its own name, and the module it comes from."""
    exported = {}
    for module, items in re.findall(
        r"\buse (?:crate::|self::)?(\w+)::(\{[^}]*\}|\w+);", library
    ):
        for item in re.findall(r"\w+", items):
            exported[item] = module
    return exported


def rust_modules(source: Path) -> Graph:
    """Which module of a crate imports which."""
    used: Graph = {}
    for file in sorted(source.rglob("*.rs")):
        module = file.relative_to(source).parts[0].removesuffix(".rs")
        if module in ("lib", "main", "bin") or re.search(r"tests?$|testing", file.stem):
            continue
        used.setdefault(module, set()).update(
            _names_used(_without_tests(file.read_text(encoding="utf-8")))
        )
    library = source / "lib.rs"
    exported = (
        _exported(library.read_text(encoding="utf-8")) if library.exists() else {}
    )
    graph = {}
    for module, names in used.items():
        reached = {name if name in used else exported.get(name, "") for name in names}
        graph[module] = (reached & set(used)) - {module}
    return graph


def python_modules(package: Path) -> Graph:
    """Which module of a Python package imports which; an import inside a function counts."""
    used: Graph = {}
    for file in sorted(package.rglob("*.py")):
        module = file.relative_to(package).parts[0].removesuffix(".py")
        names = used.setdefault(module, set())
        source = file.read_text(encoding="utf-8")
        names |= set(
            re.findall(
                rf"^\s*from {package.name}\.(\w+)[\w.]* import", source, re.MULTILINE
            )
        )
        for block in re.findall(
            rf"^\s*from {package.name} import \(?([\w\s,]+)", source, re.MULTILINE
        ):
            names |= set(re.findall(r"\w+", block))
    return {module: (names & set(used)) - {module} for module, names in used.items()}


def circles(graph: Graph) -> list[str]:
    """Groups of modules that reach each other, each as sorted names."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        ahead = [start]
        while ahead:
            new = graph[ahead.pop()] - found
            found |= new
            ahead += new
        return found

    reach = {module: reached(module) for module in graph}
    groups = {
        " ".join(sorted(other for other in reach[module] if module in reach[other]))
        for module in graph
        if module in reach[module]
    }
    return sorted(groups)


def _crate_edges() -> Graph:
    edges: Graph = {}
    for manifest in sorted(ROOT.glob("crates/*/Cargo.toml")):
        told = tomllib.loads(manifest.read_text(encoding="utf-8"))
        needed = {
            name.removeprefix("ferrite-")
            for name in told.get("dependencies", {})
            if name.startswith("ferrite-")
        }
        edges[told["package"]["name"].removeprefix("ferrite-")] = needed
    return edges


def _edges_told() -> Graph:
    """The table `crate | calls` of ARCHITECTURE.md."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = text.split("| crate | calls |\n| --- | --- |\n")[1].split("\n\n")[0]
    told: Graph = {}
    for line in table.splitlines():
        crates, calls = (cell.strip() for cell in line.strip("|").split("|"))
        for crate in crates.split(", "):
            told[crate] = set() if calls.startswith("no ") else set(calls.split(", "))
    return told


def _wrong_edges() -> list[str]:
    told, edges = _edges_told(), _crate_edges()
    wrong = [
        f"crate {crate} is not in ARCHITECTURE.md's table"
        for crate in edges.keys() - told.keys()
    ]
    for crate, needed in edges.items():
        for other in sorted(needed - told.get(crate, set())):
            wrong.append(
                f"crate {crate} depends on {other}, which ARCHITECTURE.md's table does not say"
            )
        for other in sorted(told.get(crate, set()) - needed):
            wrong.append(
                f"ARCHITECTURE.md's table says that crate {crate} calls {other}; it does not"
            )
    return wrong


def _uses(crate: str, files: list[Path]) -> bool:
    """Whether some file names the crate in code; lib.rs may give it out again."""
    word = re.compile(rf"\b{crate.replace('-', '_')}\b")
    return any(
        word.search(re.sub(r"//.*", "", file.read_text(encoding="utf-8")))
        for file in files
    )


def unused_dependencies(folder: Path) -> list[str]:
    """Dependencies of the crate in this folder that no file of it uses."""
    told = tomllib.loads((folder / "Cargo.toml").read_text(encoding="utf-8"))
    source = sorted(folder.glob("src/**/*.rs"))
    tests = sorted(folder.glob("tests/**/*.rs"))
    others = list(told.get("target", {}).values())
    wrong = []
    for kind, files in [
        ("dependencies", source),
        ("dev-dependencies", source + tests),
        ("build-dependencies", [folder / "build.rs"]),
    ]:
        for part in [told, *others]:
            wrong += [
                f"{folder.name}: nothing uses the dependency {crate}"
                for crate in sorted(part.get(kind, {}))
                if not _uses(crate, files)
            ]
    return wrong


def _wrong_dependencies() -> list[str]:
    folders = sorted(path.parent for path in ROOT.glob("crates/*/Cargo.toml"))
    wrong = [fault for folder in folders for fault in unused_dependencies(folder)]
    named: set[str] = set()
    for folder in folders:
        told = tomllib.loads((folder / "Cargo.toml").read_text(encoding="utf-8"))
        for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
            named |= set(told.get(kind, {}))
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
    for crate in sorted(set(workspace["workspace"]["dependencies"]) - named):
        wrong.append(f"Cargo.toml: no crate has the dependency {crate}")
    return wrong


def _wrong_circles() -> list[str]:
    graphs = {
        manifest.parent.name: rust_modules(manifest.parent / "src")
        for manifest in ROOT.glob("crates/*/Cargo.toml")
    }
    graphs |= {package: python_modules(ROOT / package) for package in PYTHON}
    wrong = []
    for name, graph in sorted(graphs.items()):
        found, known = set(circles(graph)), set(KNOWN.get(name, []))
        wrong += [
            f"{name}: these modules import each other in a circle: {group}"
            for group in sorted(found - known)
        ]
        wrong += [
            f"{name}: this circle is gone, take it off the list: {group}"
            for group in sorted(known - found)
        ]
    return wrong


def _prove_that_it_sees() -> None:
    """A circle that is planted is found, and one in tests or comments is none."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        (source / "lib.rs").write_text("pub use b::Thing;\n")
        (source / "a.rs").write_text("use crate::{Thing, c::Other};\n")
        (source / "b.rs").write_text(
            "// use crate::a::X;\nfn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::a::X;\n}\n"
        )
        (source / "c.rs").write_text("")
        assert circles(rust_modules(source)) == [], rust_modules(source)
        (source / "b.rs").write_text("fn f() { crate::a::g() }\n")
        assert circles(rust_modules(source)) == ["a b"], rust_modules(source)
        crate = source / "crate"
        (crate / "src").mkdir(parents=True)
        (crate / "Cargo.toml").write_text('[dependencies]\na-b = "1"\nc = "1"\n')
        (crate / "src/lib.rs").write_text("// use c::X;\nuse a_b::Y;\n")
        assert len(unused_dependencies(crate)) == 1, unused_dependencies(crate)


def main() -> int:
    """Entry point."""
    _prove_that_it_sees()
    wrong = (
        _wrong_edges()
        + _wrong_circles()
        + _wrong_dependencies()
        + check_docs.complaints()
    )
    print(
        "\n".join(wrong)
        or "no circle but the known ones, no crate edge but those of ARCHITECTURE.md, "
        "no unused dependency, documents say what the code says"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
