"""Source archives of the suites, each downloaded once by pip, compared with its SHA-256, unpacked in the cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from suites.table import Suite


class NotHere(Exception):
    """The archive cannot be had on this machine; what pip said."""


def unpacked(cache: Path, suite: Suite) -> Path:
    """The directory with the suite's files. Another version, or another archive, has another."""
    done = cache / "suites" / f"{suite.package}-{suite.version}-{suite.sha256[:12]}"
    if done.exists():
        return done
    done.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="work-", dir=done.parent))
    try:
        _unpack(_archive(work, suite), work / "root")
        (top,) = (work / "root").iterdir()
        if not done.exists():
            top.rename(done)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return done


def python() -> str:
    """The interpreter of the suites' own environment."""
    return os.environ["FERRITE_SUITES_PYTHON"]


def _archive(work: Path, suite: Suite) -> Path:
    """pip looks into the archive for the package's name before it hands it over; the environment has what that needs."""
    words = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    words += ["--no-binary", ":all:", "--dest", str(work), f"{suite.package}=={suite.version}"]
    run = subprocess.run([python(), *words], cwd=work, capture_output=True, text=True, check=False)
    found = list(work.glob("*.tar.gz"))
    if run.returncode or len(found) != 1:
        raise NotHere((run.stderr.strip() or run.stdout.strip())[-300:])
    if hashlib.sha256(found[0].read_bytes()).hexdigest() != suite.sha256:
        raise NotHere(f"{found[0].name} has not the SHA-256 that the table names")
    return found[0]


def _unpack(archive: Path, root: Path) -> None:
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(root, filter="data")
        else:
            tar.extractall(root)
