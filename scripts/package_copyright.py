"""The copyright file of a package: our own licence, then those of every crate that is linked into what it ships.

`package_copyright.py ROOT CRATE`: asks cargo which crates are linked, reads the licence texts that came with them, and writes
Debian's machine-readable format (1.0). Fails if a crate has no text of a licence that goes with GPL-2.0.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

# In this order one is chosen of a crate's licences: the words of its manifest, names of files that have the text.
CHOICES = (
    ("MIT", "Expat", ("LICENSE-MIT", "LICENSE-MIT.txt", "LICENSE_MIT", "LICENSE", "LICENSE.md", "LICENSE.txt", "COPYING")),
    ("BSD-3-Clause", "BSD-3-Clause", ("LICENSE.BSD-3-Clause", "LICENSE", "LICENSE.md", "LICENSE.txt")),
    ("Zlib", "Zlib", ("LICENSE-ZLIB", "LICENSE-ZLIB.md", "LICENSE", "LICENSE.md")),
)  # fmt: skip
# C sources within a crate, with a licence of their own.
WITHIN = {"zstd-sys": ("zstd", "BSD-3-Clause", "zstd/LICENSE")}
MIT_BEGINS = "Permission is hereby granted"
HEAD = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Ferrite
Comment:
 The crates below are linked into the programs; their sources are those that
 Cargo.lock names.

Files: *
Copyright: the Ferrite authors
License: GPL-2
 This program is free software; you can redistribute it and/or modify it under
 the terms of the GNU General Public License, version 2, as published by the
 Free Software Foundation.
 .
 This program is distributed in the hope that it will be useful, but WITHOUT ANY
 WARRANTY; without even the implied warranty of MERCHANTABILITY or FITNESS FOR A
 PARTICULAR PURPOSE. See the GNU General Public License for more details.
 .
 On Debian systems the full text is in /usr/share/common-licenses/GPL-2.

Files: rust/library/*
Copyright: the Rust Project contributors
License: Expat
Comment: the standard library of Rust, offered under MIT or Apache-2.0.
"""


def cargo(root: Path, *words: str) -> str:
    """What cargo prints about the workspace."""
    command = ["cargo", *words, "--manifest-path", str(root / "Cargo.toml"), "--locked"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def linked(root: Path, crate: str) -> set[tuple[str, str]]:
    """Name and version of all crates that end up in the programs; what only builds them does not."""
    lines = cargo(
        root,
        "tree",
        "-p",
        crate,
        "--edges",
        "normal,no-proc-macro",
        "--prefix",
        "none",
        "--format",
        "{p}",
    )
    found = (re.match(r"(\S+) v(\S+)", line) for line in lines.splitlines())
    return {(m[1], m[2]) for m in found if m}


def licence(package: dict[str, Any], terms_of_mit: str) -> tuple[str, str]:
    """The short name and the text of the licence under which a crate is used. Some crates name MIT and forget its text."""
    where = Path(package["manifest_path"]).parent
    words = re.split(r"[^\w.-]+", package["license"] or "")
    for word, name, files in CHOICES:
        if word not in words:
            continue
        for file in files:
            path = where / file
            if path.exists():
                return name, path.read_text(encoding="utf-8", errors="replace")
        if word == "MIT" and terms_of_mit:
            return name, "\n".join(
                [f"Copyright (c) {x}" for x in package["authors"]] + ["", terms_of_mit]
            )
    raise SystemExit(
        f"{package['name']} {package['version']}: no text of a fitting licence ({package['license']}) in {where}"
    )


def stanza(files: str, name: str, text: str) -> str:
    """One paragraph: whose the files are, under which licence, and its text."""
    owners = re.findall(
        r"^\W*Copyright\s+((?:\(c\)|©|\d{4}).*?)\W*$",
        text,
        re.IGNORECASE | re.MULTILINE,
    )
    body = [
        f" {line.rstrip()}" if line.strip() else " ."
        for line in text.strip().splitlines()
    ]
    owner = "\n ".join(dict.fromkeys(owners)) or "its authors"
    return (
        "\n".join([f"Files: {files}", f"Copyright: {owner}", f"License: {name}", *body])
        + "\n"
    )


def main() -> None:
    """Entry point."""
    root, crate = Path(sys.argv[1]), sys.argv[2]
    packages = json.loads(cargo(root, "metadata", "--format-version", "1"))["packages"]
    wanted = linked(root, crate)
    packages = [
        x for x in packages if x["source"] and (x["name"], x["version"]) in wanted
    ]
    terms = next(
        x[x.index(MIT_BEGINS) :]
        for x in (licence(y, "-")[1] for y in packages)
        if MIT_BEGINS in x
    )
    out = [HEAD]
    for package in sorted(packages, key=lambda x: (x["name"], x["version"])):
        files = f"vendor/{package['name']}-{package['version']}"
        out.append(stanza(f"{files}/*", *licence(package, terms)))
        if package["name"] in WITHIN:
            folder, name, file = WITHIN[package["name"]]
            text = (Path(package["manifest_path"]).parent / file).read_text(
                encoding="utf-8", errors="replace"
            )
            out.append(stanza(f"{files}/{folder}/*", name, text))
    sys.stdout.write("\n".join(out))


if __name__ == "__main__":
    main()
