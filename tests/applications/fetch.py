"""Packages of applications, each downloaded once by the registry's own client, unpacked in the cache, and never installed."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

from applications.table import Debian, Maven
from lib.extra import ROOT

COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"


class NotHere(Exception):
    """The package cannot be had on this machine; what its client said."""


def unpacked(cache: Path, source: Debian | Maven) -> Path:
    """The directory with the package's files."""
    done = cache / source.folder
    if done.exists():
        return done
    cache.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="work-", dir=cache))
    try:
        root = work / "root"
        root.mkdir()
        if isinstance(source, Debian):
            _debian(work, source)
        else:
            _maven(work, source)
        if not done.exists():
            root.rename(done)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return done


def _debian(work: Path, source: Debian) -> None:
    script = (
        '. "$FERRITE_ROOT/scripts/lib.sh"; . "$FERRITE_ROOT/scripts/apt.sh"; ferrite_apt_update;'
        ' ferrite_apt_fetch "$1" "$2"; dpkg-deb -x "$1"/*.deb "$1/root"'
    )
    _run(["bash", "-euo", "pipefail", "-c", script, "fetch", str(work), source.package], work)


def _maven(work: Path, source: Maven) -> None:
    _run(["mvn", "-q", "-B", COPY, f"-Dartifact={source.coordinates}", f"-DoutputDirectory={work}"], work)
    jars = list(work.glob("*.jar"))
    if len(jars) != 1 or hashlib.sha256(jars[0].read_bytes()).hexdigest() != source.sha256:
        raise NotHere(f"{source.coordinates} has not the SHA-256 that the table names")
    with zipfile.ZipFile(jars[0]) as jar:
        jar.extractall(work / "root", [name for name in jar.namelist() if name.endswith(".sql")])


def _run(words: list[str], work: Path) -> None:
    environment = {**os.environ, "FERRITE_ROOT": str(ROOT)}
    try:
        run = subprocess.run(words, cwd=work, env=environment, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NotHere(f"there is no {words[0]} on this machine") from None
    if run.returncode:
        raise NotHere((run.stderr.strip() or run.stdout.strip())[-300:])
