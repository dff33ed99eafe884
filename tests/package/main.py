"""The Debian packages: built twice to the same bytes, right inside, and installed, upgraded and removed in a clean Debian of
the server's release, with a server that has nothing but their files.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from lib.places import Places, find_places
from lib.server import stop_on_signals
from package import contents, operated
from package.root import Packaged, Root

PLUGIN = "mariadb-plugin-ferrite"
SO = "/usr/lib/mysql/plugin/ha_ferrite.so"
SNIPPET = "/etc/mysql/mariadb.conf.d/60-ferrite.cnf"
EPOCH = 1_700_000_000
ROWS = 1000
FILL = f"INSERT INTO shop.account SELECT seq, REPEAT('x', 100) FROM shop.seq_1_to_{ROWS}"
SUM = "SELECT COUNT(*), SUM(id), MIN(name) FROM shop.account"


class Failed(Exception):
    """A package is not as it should be."""


def _expect(condition: object, what: str, seen: object) -> None:
    if not condition:
        raise Failed(f"{what}: {seen}")


# ---- building ----


def _package(tree: Path, out: Path, env: dict[str, str], *words: str) -> list[Path]:
    done = subprocess.run(
        [str(tree / "ferrite"), "package", "--out", str(out), *words],
        env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH), **env},
        capture_output=True,
        text=True,
        check=False,
    )
    _expect(done.returncode == 0, "./ferrite package fails", done.stderr[-3000:])
    made = [Path(line) for line in done.stdout.splitlines()]
    _expect(len(made) == 2 and all(path.exists() for path in made), "two packages", done.stdout)
    return made


def _same(first: list[Path], second: list[Path]) -> None:
    for one, other in zip(first, second, strict=True):
        _expect(one.name == other.name, "the names of two builds", (one, other))
        _expect(one.read_bytes() == other.read_bytes(), "two builds differ", (one, other))


def _packed_twice(work: Path) -> list[Path]:
    """What is built already, packed at two times, under two umasks and time zones."""
    tree = Path(os.environ["FERRITE_ROOT"])
    first = _package(tree, work / "first", {"TZ": "Asia/Tokyo"})
    before = os.umask(0o077)
    try:
        second = _package(tree, work / "second", {"LC_ALL": "C.UTF-8"})
    finally:
        os.umask(before)
    _same(first, second)
    return first


def _built_twice(work: Path) -> list[Path]:
    """Compiled from nothing in two places."""
    tree = Path(os.environ["FERRITE_ROOT"])
    built = {"HA_FERRITE_SO": "", "FERRITE_TOOLS": ""}
    elsewhere = work / "elsewhere" / "tree"
    elsewhere.mkdir(parents=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=tree, capture_output=True, check=True
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (tree / name).exists():
            (elsewhere / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(tree / name, elsewhere / name)
    first = _package(tree, work / "first", {**built, "CARGO_TARGET_DIR": str(work / "target")})
    shutil.rmtree(work / "target")
    second = _package(elsewhere, work / "second", {**built, "CARGO_TARGET_DIR": str(elsewhere / "target")})
    shutil.rmtree(elsewhere)
    _same(first, second)
    return first


def _contents(made: list[Path], places: Places, forbidden: list[str]) -> None:
    for deb in made:
        package = contents.read(deb)
        wrong = contents.faults(package, EPOCH, forbidden)
        _expect(not wrong, f"faults of {deb.name}", "\n  ".join(["", *wrong]))
    plugin = contents.read(made[0])
    server = os.environ["FERRITE_SERVER_PACKAGE"]
    _expect(f"mariadb-server-core (= {server})" in plugin.fields["Depends"], "the server it is for", plugin.fields)
    _expect(plugin.fields["Version"].endswith(f"+mariadb{places.version}"), "its version", plugin.fields["Version"])
    _expect(plugin.control["conffiles"].decode() == f"{SNIPPET}\n", "its configuration files", plugin.control)


# ---- a life in a clean root ----


class Life:
    """One root, its server, and the packages that come and go."""

    def __init__(self, places: Places, work: Path, made: list[Path], next_made: list[Path]) -> None:
        self.plugin, self.tools = made
        self.next_plugin = next_made[0]
        self.root = Root(work / "root", Path(os.environ["CLEAN_ROOT"]))
        self.server = Packaged(places, self.root)

    def _good(self, *words: str, env: dict[str, str] | None = None) -> str:
        done = self.root.dpkg(*words, env=env)
        _expect(done.returncode == 0, f"dpkg {' '.join(words)}", done.stderr + done.stdout)
        return done.stderr + done.stdout

    def _refused(self, word: str, tables: list[str]) -> None:
        done = self.root.dpkg(word, PLUGIN)
        told = done.stderr
        _expect(done.returncode != 0 and "is not removed" in told, f"{word} with tables is refused", told)
        _expect(f"there are {len(tables)} Ferrite tables" in told, "the number of tables", told)
        for table in tables:
            _expect(f"{table}\n" in told, f"{table} is named", told)
        _expect(self.root.status(PLUGIN)[1:] == "i" and self.root.has(SO), "it is still installed", done)

    def install(self) -> None:
        """Without its server it is not configured; with it the engine is there at the next start."""
        alone = self.root.dpkg("-i", str(self.plugin))
        _expect(alone.returncode != 0 and "mariadb-server-core" in alone.stderr, "it needs its server", alone)
        self._good("--purge", PLUGIN)
        debs = [str(x) for x in sorted(Path(os.environ["SERVER_DEBS"]).glob("*.deb"))]
        self._good("-i", *debs)
        told = self._good("-i", str(self.plugin), str(self.tools))
        _expect("restart MariaDB" in told, "what is to be done", told)
        self.server.create()
        self.server.start()
        self.server.ask("CREATE DATABASE shop")
        self.server.ask("CREATE TABLE shop.account (id INT PRIMARY KEY, name VARCHAR(100)) ENGINE=FERRITE")
        self.server.ask(FILL)
        self.rows = self.server.ask(SUM)
        _expect(self.rows[0][0] == ROWS, "rows", self.rows)

    def refuse(self) -> None:
        """Removal, with the server running and stopped; a partitioned table counts, what only speaks of the engine does not."""
        ask = self.server.ask
        ask("CREATE TABLE shop.part (id INT PRIMARY KEY) ENGINE=FERRITE PARTITION BY HASH (id) PARTITIONS 3")
        ask("CREATE VIEW shop.engines AS SELECT 'FERRITE' AS name")
        ask("CREATE TABLE shop.other (id INT PRIMARY KEY) ENGINE=Aria")
        tables = ["/var/lib/mysql/shop/account", "/var/lib/mysql/shop/part"]
        self._refused("--remove", tables)
        _expect(self.server.ask(SUM) == self.rows, "rows after a refusal", self.rows)
        self.server.stop()
        self._refused("--purge", tables)

    def upgrade(self) -> None:
        """To the next revision and back: rows stay."""
        for deb in (self.next_plugin, self.plugin):
            self._good("-i", str(deb))
            self.server.start()
            _expect(self.server.ask(SUM) == self.rows, "rows after an upgrade", self.rows)
            self.server.ask("CHECK TABLE shop.account EXTENDED")
            self.server.stop()
        self._not_restarted()

    def _not_restarted(self) -> None:
        """An upgrade after which the service does not come up says so."""
        invoke = self.root.path / "usr/local/sbin/deb-systemd-invoke"
        booted = self.root.path / "run/systemd/system"
        booted.mkdir(parents=True)
        for code, told in ((1, True), (0, False)):
            invoke.write_text(f'#!/bin/sh\n[ "$*" = "try-restart mariadb.service" ] || exit 0\nexit {code}\n')
            invoke.chmod(0o755)
            path = "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
            said = self._good("-i", str(self.plugin), env={"PATH": path})
            _expect(("MARIADB WAS NOT RESTARTED" in said) == told, "what is said of a restart", said)
            _expect(self.root.status(PLUGIN) == "ii", "it is installed all the same", self.root.status(PLUGIN))
        invoke.unlink()
        booted.rmdir()

    def operate(self) -> None:
        """The command of the tools' package, on the server that runs as mysql."""
        operated.Operated(self.root, self.server, SUM).all()

    def tools_run(self) -> None:
        """The tools' package, on the stopped server's files."""
        for tool in ("ferrite-check", "ferrite-backup", "ferrite-rewind"):
            _expect(self.root.run(tool, "--version").stdout.startswith(tool), "its version", tool)
        checked = self.root.run("ferrite-check", "/var/lib/mysql")
        _expect(checked.returncode == 0, "ferrite-check", checked)
        listed = self.root.run("ferrite-rewind", "--list", "/var/lib/mysql")
        _expect(listed.returncode == 0 and not listed.stdout, "ferrite-rewind", listed)
        with operated.no_python(self.root):
            needs = self.root.run("ferrite-top", "--help")
        _expect(needs.returncode == 1 and "python3-pymysql" in needs.stderr, "what ferrite-top needs", needs)
        self._good("--purge", "ferrite-tools")
        operated.gone(self.root)

    def elsewhere(self) -> None:
        """A data directory that only the configuration names, with spaces and quotes."""
        moved = self.root.path / "srv/my data"
        self.server.datadir.rename(moved)
        config = self.root.path / "etc/mysql/mariadb.conf.d/99-place.cnf"
        config.write_text('[mariadbd]\n datadir = "/srv/my data/"   # elsewhere\n')
        self._refused("--remove", ["/srv/my data/shop/account", "/srv/my data/shop/part"])
        config.unlink()
        moved.rename(self.server.datadir)

    def anyway(self) -> None:
        """Removed and purged on demand: the data stays, and is there again with the package."""
        told = self._good("--purge", PLUGIN, env={"FERRITE_REMOVE_ANYWAY": "yes"})
        _expect("although there are 2 Ferrite tables" in told, "what is said", told)
        _expect(not self.root.has(SO) and not self.root.has(SNIPPET), "its files", SO)
        self._good("-i", str(self.plugin))
        self.server.start()
        _expect(self.server.ask(SUM) == self.rows, "rows after purge and installation", self.rows)

    def recovery(self) -> None:
        """A start after a crash asks systemd for more time."""
        self.server.ask("UPDATE shop.account SET name = 'after'")
        self.server.kill()
        place = self.root.path / "run/notify"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(str(place))
            listener.settimeout(10)
            self.server.notify = "/run/notify"
            self.server.start()
            self.server.notify = ""
            told = ""
            while "READY=1" not in told:
                told += listener.recv(4096).decode() + "\n"
        _expect("EXTEND_TIMEOUT_USEC=60000000\nSTATUS=Ferrite: " in told, "what systemd is told", told)
        _expect(self.server.ask(SUM)[0][2] == "after", "rows after recovery", told)

    def container(self) -> None:
        """What the container runs: its first start lays out the data directory, cut off or not."""
        recipe = Path(os.environ["FERRITE_ROOT"]) / "packaging/container"
        root = self.root.path
        self._good("-i", str(self.plugin))
        shutil.copy2(recipe / "entrypoint.sh", root / "usr/local/bin/entrypoint.sh")
        shutil.copy2(recipe / "container.cnf", root / "etc/mysql/mariadb.conf.d/70-container.cnf")
        operated.add_account(self.root)
        shutil.rmtree(self.server.datadir)
        self.server.datadir.mkdir()
        (root / "var/lib/mysql/data.new").mkdir()
        for place in (root / "run/mysqld", self.server.datadir):
            os.chown(place, 999, 999)
        self.server.program = ["/usr/local/bin/entrypoint.sh", "mariadbd", "--skip-networking"]
        password = 'it\'s \\ a "secret"'
        told = self.root.run(*self.server.program)
        _expect(told.returncode != 0 and "MARIADB_ROOT_PASSWORD" in told.stderr, "it needs a password", told)
        self.server.environment = {"MARIADB_ROOT_PASSWORD": password}
        self.server.start()
        hashed = "JSON_VALUE(priv, '$.authentication_string')"
        where = "user = 'root' AND host = '%%'"
        connection = self.server.connect()
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {hashed} = PASSWORD(%s) FROM mysql.global_priv WHERE {where}", (password,))
            _expect(cursor.fetchall() == ((1,),), "root's password", "")
        connection.close()
        self.server.ask("CREATE DATABASE shop")
        self.server.ask("CREATE TABLE shop.account (id INT PRIMARY KEY, name VARCHAR(100))")
        self.server.ask(FILL)
        self.server.stop()
        self.server.environment = {}
        self.server.start()
        _expect(self.server.ask(SUM) == self.rows, "rows of the container's second start", self.rows)
        self._refused("--remove", ["/var/lib/mysql/data/shop/account"])
        self.server.stop()

    def remove(self) -> None:
        """Without tables it goes; the server starts without it."""
        self.server.ask("DROP TABLE shop.account, shop.part")
        self._good("--remove", PLUGIN)
        _expect(self.root.status(PLUGIN) == "rc" and not self.root.has(SO), "it is removed", self.root.status(PLUGIN))
        self.server.stop()
        self.server.start()
        _expect(not self.server.ask("SELECT 1 FROM information_schema.engines WHERE engine = 'FERRITE'"), "engines", "")
        _expect(self.server.ask("SELECT name FROM shop.engines") == [("FERRITE",)], "other tables", "")
        self.server.stop()
        self._good("--purge", PLUGIN)
        _expect(not self.root.has(SNIPPET) and self.root.has("/var/lib/mysql/#ferrite"), "purge", "")


def _lived(places: Places, work: Path, made: list[Path]) -> None:
    tree = Path(os.environ["FERRITE_ROOT"])
    life = Life(places, work, made, _package(tree, work / "next", {}, "--revision", "2"))
    steps: tuple[Callable[[], None], ...] = (
        life.install,
        life.refuse,
        life.upgrade,
        life.operate,
        life.tools_run,
        life.elsewhere,
        life.anyway,
        life.recovery,
        life.remove,
        life.container,
    )
    try:
        for step in steps:
            step()
            print(f"{step.__name__}: as it should be", flush=True)
    finally:
        life.server.kill()


def _linted(made: list[Path]) -> None:
    if not shutil.which("lintian"):
        print("lintian is not installed: its opinion was not asked", flush=True)
        return
    done = subprocess.run(
        ["lintian", "--fail-on", "error", "--no-cfg", *made], capture_output=True, text=True, check=False
    )
    print(done.stdout, end="", flush=True)
    _expect(done.returncode == 0, "lintian", done.stdout + done.stderr)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="./ferrite test package", description=__doc__)
    parser.add_argument("--ci", action="store_true", help="what is built already is packed; nothing is compiled twice")
    options = parser.parse_args()
    stop_on_signals()
    places = find_places()
    work = Path(tempfile.mkdtemp(prefix="ferrite-package-", dir="/var/tmp"))
    try:
        made = _packed_twice(work) if options.ci else _built_twice(work)
        print("two builds are the same, byte by byte", flush=True)
        paths = [] if options.ci else [os.environ["FERRITE_ROOT"], str(Path.home()), str(work)]
        _contents(made, places, paths)
        print("contents: as they should be", flush=True)
        if not options.ci:
            _linted(made)
        _lived(places, work, made)
    except (Failed, operated.Failed) as e:
        print(f"FAILED: {e}", flush=True)
        return 1
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
