"""The private, writable copy of the server and its mysql-test tree, where an unprivileged user may run mtr."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lib.places import Places

OVERLAY = Path(__file__).parent / "overlay"
OVERLAY_FOLDER = "ferrite"
"""What mtr's folder of overlays calls ours."""


SYSTEM_HOME = Path("/var/lib/ferrite")
"""Where root puts what its accounts must reach, when they cannot reach its cache; scripts/account.sh has the same."""


@dataclass(frozen=True)
class Account:
    """Who runs mtr: some tests cannot run as root."""

    uid: int
    gid: int

    @property
    def switch(self) -> dict[str, object]:
        """Keywords for subprocess."""
        if os.geteuid() != 0:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def runner_account() -> Account:
    """The current user, or for root the account that run.sh made: nobody else has it, and it owns nothing else."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    entry = pwd.getpwnam(os.environ["FT_ACCOUNT"])
    return Account(entry.pw_uid, entry.pw_gid)


class Tree:
    """Layout: <home>/usr (a copy of the server), <home>/libs, <home>/var*, <home>/oracle-<version>."""

    def __init__(self, places: Places, account: Account) -> None:
        self.places = places
        self.account = account
        self.home = self._home()
        self.usr = self.home / "usr"
        self.mtr = self.usr / places.share.relative_to(places.basedir) / self._name_of_tests()
        self.plugins = self.usr / "lib" / "mysql" / "plugin"

    def _name_of_tests(self) -> str:
        """Since 11 the folder has MariaDB's name."""
        return "mysql-test" if (self.places.share / "mysql-test").exists() else "mariadb-test"

    def _home(self) -> Path:
        """In the cache; root's is often closed to others, and then the copy goes where the other user can reach it."""
        cache = self.places.cache.resolve()
        reachable = all(p.stat().st_mode & 0o001 for p in (cache, *cache.parents) if p.exists())
        home = cache if os.geteuid() != 0 or reachable else SYSTEM_HOME
        return home / f"mtr-{self.places.version}"

    def lock(self) -> IO[str]:
        """One run at a time in the tree: keep what is returned until the run ends."""
        self.home.parent.mkdir(parents=True, exist_ok=True)
        handle = (self.home.parent / f".{self.home.name}.lock").open("a")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"mtr: waiting for another run in {self.home}", flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        return handle

    def prepare(self) -> None:
        """Make the copy once; put the plugin and the overlay of today into it."""
        if not (self.home / "complete").exists():
            self._copy()
        if self.home.stat().st_uid not in (0, os.geteuid(), self.account.uid):
            raise SystemExit(f"{self.home} belongs to somebody else: remove it or run as its owner")
        self.home.chmod(0o700)
        if self.places.ferrite_so:
            self.replace(self.places.ferrite_so, self.plugins / "ha_ferrite.so")
        target = self.mtr / "plugin" / OVERLAY_FOLDER
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(OVERLAY, target)
        self.give(target)

    def _copy(self) -> None:
        print(f"mtr: copying the server and its tests to {self.home} (once)", flush=True)
        self.home.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="ferrite-mtr-", dir=self.home.parent))
        for part in ("bin", "sbin", "share", "lib"):
            shutil.copytree(
                self.places.basedir / part, work / "usr" / part, symlinks=True, ignore_dangling_symlinks=True
            )
        libs = work / "libs"
        libs.mkdir()
        for directory in filter(None, self.places.library_path.split(":")):
            for library in filter(Path.exists, Path(directory).glob("*.so*")):
                shutil.copy2(library, libs / library.name)
        for folder in (p for p in work.rglob("*") if p.is_dir() and not p.is_symlink()):
            folder.chmod(0o755)
        self._give_all(work)
        (work / "complete").touch()
        shutil.rmtree(self.home, ignore_errors=True)
        work.rename(self.home)

    def give(self, path: Path) -> None:
        """Hand files to the user that runs mtr."""
        self._give_all(path)

    def _give_all(self, path: Path) -> None:
        if os.geteuid() != 0:
            return
        os.chown(path, self.account.uid, self.account.gid, follow_symlinks=False)
        if path.is_dir():
            for found in path.rglob("*"):
                os.chown(found, self.account.uid, self.account.gid, follow_symlinks=False)

    def replace(self, source: Path, target: Path) -> None:
        """Copy over a file that a running server may still have open."""
        target.unlink(missing_ok=True)
        shutil.copy2(source, target)
        self.give(target)

    def write(self, path: Path, text: str) -> None:
        """A text file for the user that runs mtr."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
        self.give(path)

    def var(self, suite: str, disk: bool) -> Path:
        """Where mtr works: in memory, since these suites wait for the disk more than for anything else.

        Nobody else can know the name or look inside. storage_engine prints its path in a result, and so stays where its
        oracle was recorded.
        """
        memory = Path("/dev/shm")
        if disk or suite.startswith("storage_engine") or not os.access(memory, os.W_OK):
            return self.home / f"var-{suite}"
        private = Path(tempfile.mkdtemp(prefix="ferrite-mtr-", dir=memory))
        self.give(private)
        return private / "var"

    def child_env(self) -> dict[str, str]:
        """Environment of mtr."""
        keep = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "TERM", "TZ")}
        keep |= {"HOME": str(self.home), "LD_LIBRARY_PATH": str(self.home / "libs")}
        return keep
