"""Runs one experiment: servers up, data in, rounds of cases with the contestants in turn (A B A B), records out.

While one contestant is measured the servers of the others are paused (SIGSTOP): they neither take processor time nor
settle their debts on another's account. What fails is recorded and marks the run incomplete; the rest goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pymysql

from ferrite_bench import machine
from ferrite_bench.engines import Contestant, Engine, missing, plugin_file
from ferrite_bench.errors import BenchError, DiskFull, ServerDied
from ferrite_bench.places import Places
from ferrite_bench.progress import Progress
from ferrite_bench.server import Server
from ferrite_bench.session import Session
from ferrite_bench.store import Place, Writer
from ferrite_bench.terms import Size
from ferrite_bench.workloads.base import Case, Experiment, Setup

START_ESTIMATE = 2.0
LOG_ROOM_MB = 2600
"""Redo logs, binlogs and the system tables of one server."""


@dataclass
class Request:
    """What the user asked for."""

    experiment: Experiment
    engines: list[Engine]
    size: Size
    out: Path
    work: Path
    rounds: int | None = None
    keep: bool = False
    rerun: str = ""


@dataclass
class Arena:
    """The servers of one setup."""

    sessions: dict[str, Session] = field(default_factory=dict)
    data: str = ""

    def only(self, key: str) -> Session:
        """Pause all but one."""
        for other, session in self.sessions.items():
            if other != key:
                session.server.pause()
        self.sessions[key].server.resume()
        return self.sessions[key]

    def drop(self, key: str) -> None:
        """A contestant is out."""
        self.sessions.pop(key).server.remove()


def contestants_of(experiment: Experiment, engines: list[Engine]) -> list[Contestant]:
    """One per engine, or one per variation of it."""
    out = []
    for item in engines:
        variants = experiment.variants.get(item.key)
        out += [Contestant(item, name, options) for name, options in variants] if variants else [Contestant(item)]
    return out


class Runner:
    """One run of one experiment."""

    def __init__(self, request: Request, places: Places) -> None:
        self.request = request
        self.places = places
        self.setups = request.experiment.setups(request.size)
        self.progress = Progress(1.0)
        self.commit = machine.commit(places.root)
        self.machine = machine.describe(request.work)
        stamp = {
            "experiment": request.experiment.name,
            "commit": self.commit,
            "machine": machine.short_hash(self.machine),
        }
        self.writer = Writer(request.out, stamp)
        self.present: list[Contestant] = []
        self.plugins = request.work / "plugins"

    # ---- the whole --------------------------------------------------------------------------

    def run(self) -> bool:
        """True when everything asked for was measured."""
        request = self.request
        self._header()
        finished = False
        try:
            self._choose()
            self.progress = Progress(self._plan())
            arena = Arena()
            try:
                for setup in self.setups:
                    self._setup(arena, setup)
            finally:
                self._clear(arena)
            finished = True
        except KeyboardInterrupt:
            self._problem(None, "interrupted: what was measured until then is kept")
            raise
        except BenchError as error:
            self._problem(None, str(error))
        finally:
            self.writer.end(finished and self.writer.problems == 0)
            if not request.keep:
                shutil.rmtree(request.work, ignore_errors=True)
        return self.writer.problems == 0

    def _header(self) -> None:
        experiment, request = self.request.experiment, self.request
        self.writer.line(
            "run",
            experiment=experiment.name,
            size=request.size.name,
            started=time.strftime("%Y-%m-%d %H:%M:%S"),
            commit=self.commit,
            server=f"MariaDB {self.places.version}",
            machine=self.machine,
            machine_id=machine.short_hash(self.machine),
            rerun=request.rerun,
            contestants=[
                {"key": c.key, "label": c.label, "engine": c.engine.key, "color": c.engine.color}
                for c in contestants_of(experiment, request.engines)
            ],
        )

    def _choose(self) -> None:
        """Who can take part; the absent are named."""
        for contestant in contestants_of(self.request.experiment, self.request.engines):
            reason = missing(contestant.engine, self.places.plugin_dir)
            if reason:
                self._problem(Place(contestant.key), f"{contestant.label} does not take part: {reason}")
            else:
                self._copy_plugin(contestant.engine)
                self.present.append(contestant)
        if not self.present:
            raise BenchError("no engine is left to measure")

    def _copy_plugin(self, item: Engine) -> None:
        """A copy for the whole run: a build that goes on meanwhile must not change what is measured."""
        self.plugins.mkdir(exist_ok=True)
        source = plugin_file(item, self.places.plugin_dir)
        copy = self.plugins / item.plugin
        if source is not None and not copy.exists():
            shutil.copy2(source, copy)
            build = hashlib.sha256(copy.read_bytes()).hexdigest()[:12]
            self.writer.note(Place(item.key), f"{item.label}: {item.plugin} with SHA-256 {build}...")

    def _rounds(self, setup: Setup) -> int:
        if self.request.size.name == "smoke":
            return 1
        return self.request.rounds or setup.rounds or self.request.size.rounds

    def _plan(self) -> float:
        total, data = 0.0, ""
        for setup in self.setups:
            total += START_ESTIMATE + (setup.data.seconds if setup.data.name != data else 0)
            total += self._rounds(setup) * sum(c.seconds for c in setup.cases)
            data = setup.data.name
        return total * len(self.present)

    # ---- one setup --------------------------------------------------------------------------

    def _setup(self, arena: Arena, setup: Setup) -> None:
        self._open(arena, setup)
        for number in range(1, self._rounds(setup) + 1):
            for case in setup.cases:
                for contestant in self.present:
                    able = case.ceiling or contestant.engine.key != "ceiling"
                    if able and contestant.key in arena.sessions:
                        self._case(arena, contestant, case, number, self._rounds(setup))

    def _open(self, arena: Arena, setup: Setup) -> None:
        """Servers with this setup's settings, on the previous setup's data if that is the same."""
        fresh = setup.data.name != arena.data
        if fresh:
            self._clear(arena)
            self._need_room(setup)
        for contestant in self.present:
            place = Place(contestant.key, setup.name)
            planned = START_ESTIMATE + (setup.data.seconds if fresh else 0)
            if not fresh and contestant.key not in arena.sessions:
                self.progress.skip(planned)
                continue
            self.progress.step(f"{contestant.label}: {setup.data.name if fresh else setup.name}, preparing", planned)
            with self._surviving(arena, place, lost=self._cases_planned(setup)):
                session = self._start(arena, contestant, setup, place)
                if fresh:
                    arena.only(contestant.key)
                    session.fresh_database()
                    setup.data.build(session)
                how = session.server.limit_io()
                if how:
                    self.writer.note(place, f"{contestant.label}, {setup.name}: volume limited through {how}.")
            if contestant.key in arena.sessions:
                arena.sessions[contestant.key].server.pause()
        arena.data = setup.data.name

    def _start(self, arena: Arena, contestant: Contestant, setup: Setup, place: Place) -> Session:
        old = arena.sessions.get(contestant.key)
        if old is not None:
            arena.only(contestant.key)
            old.server.stop()
            if old.server.throttle is not None:
                old.server.throttle.remove()
            old.server.needs = setup.needs
            server = old.server
        else:
            home = self.request.work / contestant.key
            shutil.rmtree(home, ignore_errors=True)
            server = Server(self.places, contestant, setup.needs, home, self.plugins)
        arena.sessions[contestant.key] = Session(server, self.request.size, self.writer, place, self.progress)
        options = server.options()
        if setup.needs.iops is not None:
            options.append(f"[volume limited to {setup.needs.iops} reads and {setup.needs.iops} writes a second]")
        self.writer.settings(place, options, machine.short_hash(options), contestant.engine.notes)
        for other in arena.sessions.values():
            other.server.pause()
        server.start()
        return arena.sessions[contestant.key]

    def _cases_planned(self, setup: Setup) -> float:
        return self._rounds(setup) * sum(c.seconds for c in setup.cases)

    def _need_room(self, setup: Setup) -> None:
        wanted = len(self.present) * (setup.data.disk_mb + LOG_ROOM_MB)
        free = machine.free_mb(self.request.work)
        if free < wanted:
            raise DiskFull(
                f"setup '{setup.name}' needs about {wanted:,} MB of disk for {len(self.present)} contestants, "
                f"{free:,.0f} MB are free: use fewer engines, a smaller size, or --work on a larger disk"
            )

    # ---- one case ---------------------------------------------------------------------------

    def _case(self, arena: Arena, contestant: Contestant, case: Case, number: int, rounds: int) -> None:
        session = arena.only(contestant.key)
        of = f", round {number} of {rounds}" if rounds > 1 else ""
        self.progress.step(f"{contestant.label}: {case.name}{of}", case.seconds)
        session.offset = 0.0
        session.last_round = number == rounds
        session.place = Place(contestant.key, session.place.setup, case.name, case.series, case.x, number)
        with self._surviving(arena, session.place, lost=0):
            case.run(session)

    @contextlib.contextmanager
    def _surviving(self, arena: Arena, place: Place, lost: float) -> Iterator[None]:
        """Record what goes wrong; a contestant whose server is gone or unusable leaves the setup."""
        try:
            yield
        except (BenchError, pymysql.err.Error, OSError) as error:
            session = arena.sessions.get(place.contestant)
            text = str(error) if not isinstance(error, pymysql.err.Error) else f"SQL error {error.args}"
            if session is not None and not isinstance(error, ServerDied):
                try:
                    session.server.check()
                except ServerDied as death:
                    text = str(death)
            self._problem(place, text)
            dead = session is not None and not session.server.alive()
            if session is not None and (dead or not place.case):
                arena.drop(place.contestant)
                self.progress.skip(lost)
            if isinstance(error, DiskFull):
                raise BenchError("stopped for want of disk") from None

    def _problem(self, place: Place | None, text: str) -> None:
        self.writer.problem(place, text)
        where = " / ".join(x for x in ((place.contestant, place.case or place.setup) if place else ()) if x)
        self.progress.say(f"PROBLEM {where + ': ' if where else ''}{text}")

    @staticmethod
    def _clear(arena: Arena) -> None:
        for key in list(arena.sessions):
            arena.drop(key)
        arena.data = ""
