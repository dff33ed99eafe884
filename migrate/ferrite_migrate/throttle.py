"""When the next group may begin: replicas that are not behind, a server that is not busy, a pause, and an end of the time given.

An ALTER TABLE cannot be slowed down once it runs: the throttle is between tables. What Ferrite writes meanwhile is throttled by the
engine (`ferrite_log_budget`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ferrite_migrate.errors import Problem
from ferrite_migrate.server import Login, Session

POLL_SECONDS = 2.0


@dataclass
class Throttle:
    """The limits; zero or nothing means none."""

    pause_seconds: float = 0
    max_threads_running: int = 0
    max_lag_seconds: int | None = None
    replicas: list[Login] = field(default_factory=list)
    max_wait_seconds: float = 3600
    max_time_seconds: float = 0
    began: float = field(default_factory=time.monotonic)

    def time_is_up(self) -> bool:
        """No further group is to begin."""
        return bool(self.max_time_seconds) and time.monotonic() - self.began >= self.max_time_seconds

    def wait(self, session: Session, first: bool, stopped: Callable[[], bool], tell: Callable[[str], None]) -> None:
        """Return when the next group may begin, or when stopped."""
        if not first:
            _sleep(self.pause_seconds, stopped)
        until = time.monotonic() + self.max_wait_seconds
        told = ""
        while not stopped():
            obstacle = self._obstacle(session)
            if not obstacle:
                return
            if time.monotonic() > until:
                raise Problem(
                    f"waited {self.max_wait_seconds:.0f} s: {obstacle}; nothing is unfinished, --resume goes on"
                )
            if obstacle.split(":")[0] != told:
                tell(f"waiting: {obstacle}")
            told = obstacle.split(":")[0]
            _sleep(POLL_SECONDS, stopped)

    def _obstacle(self, session: Session) -> str:
        if self.max_threads_running:
            running = int(session.run("SHOW GLOBAL STATUS LIKE 'Threads_running'")[0][1])
            if running > self.max_threads_running:
                return f"threads running: {running}"
        for login in self.replicas if self.max_lag_seconds is not None else []:
            lag = replica_lag(login)
            if lag is None:
                return f"replica {login.place()} does not replicate"
            if lag > (self.max_lag_seconds or 0):
                return f"replica {login.place()} is behind: {lag} s"
        return ""


def replica_lag(login: Login) -> int | None:
    """The greatest Seconds_Behind_Master of a replica; None if it stands still."""
    session = Session(login)
    try:
        with session.connection.cursor() as cursor:
            cursor.execute("SHOW ALL SLAVES STATUS")
            names = [x[0] for x in cursor.description]
            lags = [dict(zip(names, row, strict=True))["Seconds_Behind_Master"] for row in cursor.fetchall()]
    finally:
        session.close()
    return None if not lags or None in lags else max(int(x) for x in lags)


def _sleep(seconds: float, stopped: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not stopped():
        time.sleep(min(0.2, max(0.0, until - time.monotonic())))
