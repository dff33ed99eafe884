"""What is in a package: owners, modes, times, sums, fields. Read from its archives, without dpkg's help."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

NEEDED = {
    "mariadb-plugin-ferrite": (
        "usr/lib/mysql/plugin/ha_ferrite.so",
        "etc/mysql/mariadb.conf.d/60-ferrite.cnf",
        "usr/share/man/man7/mariadb-plugin-ferrite.7.gz",
        "usr/share/doc/mariadb-plugin-ferrite/README.Debian",
        "usr/share/doc/mariadb-plugin-ferrite/examples/apparmor",
        "usr/share/doc/mariadb-plugin-ferrite/examples/ferrite.conf",
    ),
    "ferrite-tools": (
        "usr/bin/ferrite",
        "usr/share/ferrite-tools/scripts/backup.sh",
        "usr/share/ferrite-tools/scripts/installed.sh",
        "usr/share/ferrite-tools/ferrite_migrate/__main__.py",
        "usr/share/ferrite-tools/prometheus/ferrite.rules.yml",
        "usr/share/ferrite-tools/grafana/ferrite.json",
        "usr/share/doc/ferrite-tools/backup.md.gz",
        "usr/share/man/man1/ferrite.1.gz",
        "usr/bin/ferrite-check",
        "usr/bin/ferrite-backup",
        "usr/bin/ferrite-rewind",
        "usr/bin/ferrite-top",
        "usr/share/ferrite-tools/ferrite_top/__main__.py",
        "usr/share/man/man1/ferrite-top.1.gz",
        "usr/share/man/man1/ferrite-check.1.gz",
        "usr/share/man/man1/ferrite-backup.1.gz",
        "usr/share/man/man1/ferrite-rewind.1.gz",
    ),
}
PT_GNU_RELRO = 0x6474E552
PAPERS = ("copyright", "changelog.gz", "changelog.Debian.gz")


@dataclass(frozen=True)
class Package:
    """A .deb file, read."""

    fields: dict[str, str]
    control: dict[str, bytes]
    files: dict[str, tuple[tarfile.TarInfo, bytes]]


def read(deb: Path) -> Package:
    """Take it apart."""
    control = _members(subprocess.run(["dpkg-deb", "--ctrl-tarfile", deb], capture_output=True, check=True).stdout)
    files = _members(subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], capture_output=True, check=True).stdout)
    scripts = {name: data for name, (_, data) in control.items()}
    lines = [x for x in scripts["control"].decode().splitlines() if not x.startswith(" ")]
    return Package(dict(line.split(": ", 1) for line in lines), scripts, files)


def _members(archive: bytes) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        found = {}
        for member in tar.getmembers():
            file = tar.extractfile(member)
            found[member.name.removeprefix("./")] = (member, file.read() if file else b"")
        return found


def faults(package: Package, epoch: int, forbidden: list[str]) -> list[str]:
    """What is wrong with it. `forbidden`: texts that no file may have."""
    name = package.fields["Package"]
    doc = [f"usr/share/doc/{name}/{paper}" for paper in PAPERS]
    wrong = [f"{path} is missing" for path in (*NEEDED[name], *doc) if path not in package.files]
    for path, (member, data) in package.files.items():
        wrong += [f"{path}: {text}" for text in _faults_of(path, member, epoch)]
        if data.startswith(b"\x7fELF") and not _relro(data):
            wrong.append(f"{path} has no RELRO: what the linker resolved stays writable")
        wrong += [f"{path} contains {text}" for text in forbidden if text.encode() in _plain(path, data)]
    wrong += _sums(package) + _size(package)
    for field in (
        "Version",
        "Architecture",
        "Maintainer",
        "Section",
        "Priority",
        "Installed-Size",
        "Depends",
        "Description",
    ):
        if field not in package.fields:
            wrong.append(f"control has no {field}")
    for script in package.control.keys() & {"prerm", "postinst", "preinst", "postrm"}:
        if not package.control[script].startswith(b"#!/bin/sh\n"):
            wrong.append(f"{script} is no shell script")
    return wrong


def _faults_of(path: str, member: tarfile.TarInfo, epoch: int) -> list[str]:
    wrong = []
    if (member.uid, member.gid, member.uname, member.gname) != (0, 0, "root", "root"):
        wrong.append(f"belongs to {member.uname}:{member.gname}")
    wanted = 0o755 if member.isdir() or path.startswith("usr/bin/") else 0o644
    if member.mode != wanted:
        wrong.append(f"mode {member.mode:o}, not {wanted:o}")
    if member.mtime != epoch:
        wrong.append(f"time {member.mtime}, not {epoch}")
    if not (member.isdir() or member.isfile()):
        wrong.append("neither a file nor a directory")
    return wrong


def _relro(program: bytes) -> bool:
    """Whether a program of 64 bits has the header that makes its table of addresses read-only."""
    (at,) = struct.unpack_from("<Q", program, 32)
    size, count = struct.unpack_from("<HH", program, 54)
    return any(struct.unpack_from("<I", program, at + i * size) == (PT_GNU_RELRO,) for i in range(count))


def _plain(path: str, data: bytes) -> bytes:
    return gzip.decompress(data) if path.endswith(".gz") else data


def _size(package: Package) -> list[str]:
    """The size that is told depends on the files alone: each in whole KiB, each directory as one."""
    kib = sum(-(-member.size // 1024) if member.isfile() else 1 for member, _ in package.files.values())
    told = package.fields["Installed-Size"]
    return [] if told == str(kib) else [f"Installed-Size is {told}, and the files take {kib}"]


def _sums(package: Package) -> list[str]:
    told = {}
    for line in package.control["md5sums"].decode().splitlines():
        digest, path = line.split("  ", 1)
        told[path] = digest
    real = {
        path: hashlib.md5(data, usedforsecurity=False).hexdigest()
        for path, (member, data) in package.files.items()
        if member.isfile()
    }
    return [] if told == real else [f"md5sums are not those of the files: {sorted(told.items() ^ real.items())}"]
