"""Locks that others hold: asked for a few seconds at a time, since whoever comes later waits behind the request.

LOCK TABLES asks once, at its beginning: a short `lock_wait_timeout` is all that it needs. An ALTER TABLE asks before the copy, for
writers to end, and after it, for readers. With a short timeout the second one would throw the copy away; so the timeout is long, and
another session ends a statement that waits before it has begun to copy. What has been copied is not copied again.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from ferrite_migrate.errors import LOCK_WAIT_TIMEOUT, QUERY_INTERRUPTED, Busy, Problem, Refused
from ferrite_migrate.progress import say
from ferrite_migrate.server import Login, Session

LOOK_SECONDS = 0.02
USUAL_SECONDS = 86400
COPYING = "copy to tmp table"


class Start:
    """Ends another session's statement if it still waits for a lock after so many seconds and has not copied yet."""

    def __init__(self, login: Login, watched: int, seconds: float) -> None:
        self.login, self.watched, self.seconds = login, watched, seconds
        self.begun = self.ended_it = False
        # Held around the look and KILL QUERY: no later statement of the session is hit.
        self.mutex, self.ended = threading.Lock(), threading.Event()

    def run(self, session: Session) -> None:
        """Until the statement has begun, has ended, or is ended."""
        with contextlib.suppress(Problem):
            until = time.monotonic() + self.seconds
            while not (self.begun or self.ended_it or self.ended.wait(LOOK_SECONDS)):
                with self.mutex:
                    self._look(session, time.monotonic() > until)
        session.close()

    def _look(self, session: Session, late: bool) -> None:
        if self.ended.is_set():
            return
        state = str(
            session.value(f"SELECT IFNULL(STATE, '') FROM information_schema.PROCESSLIST WHERE ID={self.watched}") or ""
        )
        self.begun = state == COPYING
        if late and state.startswith("Waiting for"):
            self.ended_it = True
            session.run(f"KILL QUERY {self.watched}")

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """While the statement runs. Connected before it begins: a short copy would be over unseen, and be done again."""
        thread = threading.Thread(target=self.run, args=[Session(self.login)], daemon=True)
        thread.start()
        try:
            yield
        finally:
            with self.mutex:
                self.ended.set()
            thread.join(5)


class Patience:
    """How long one session waits for others."""

    def __init__(self, login: Login, main: Session, seconds: int, tries: int, stopped: Callable[[], bool]) -> None:
        assert seconds > 0 and tries > 0, "it asks once at least"
        self.login, self.main, self.seconds, self.tries, self.stopped = login, main, seconds, tries, stopped

    def lock(self, sql: str, what: str) -> None:
        """LOCK TABLES."""
        with self._timeout(self.seconds):
            self._repeat(lambda: self._once(sql), what)

    def alter(self, sql: str, what: str) -> None:
        """An ALTER TABLE that takes its locks by itself. Its copy waits at its end as long as all tries together."""
        with self._timeout(self.seconds * self.tries):
            self._repeat(lambda: self._start(sql, what), what)

    @contextlib.contextmanager
    def _timeout(self, seconds: int) -> Iterator[None]:
        self.main.run(f"SET SESSION lock_wait_timeout={seconds}")
        try:
            yield
        finally:
            self.main.run(f"SET SESSION lock_wait_timeout={USUAL_SECONDS}")

    def _once(self, sql: str) -> bool:
        try:
            self.main.run(sql)
        except Refused as e:
            if e.code != LOCK_WAIT_TIMEOUT:
                raise
            return False
        return True

    def _start(self, sql: str, what: str) -> bool:
        start = Start(self.login, self.main.id, self.seconds)
        try:
            with start.watching():
                self.main.run(sql)
        except Refused as e:
            if start.ended_it and e.code == QUERY_INTERRUPTED:
                return False
            if e.code != LOCK_WAIT_TIMEOUT:
                raise
            if start.begun:
                raise Busy(
                    f"{what}: copied, but other sessions hold locks (long transactions), so the copy is gone"
                ) from e
            return False
        return True

    def _repeat(self, attempt: Callable[[], bool], what: str) -> None:
        for turn in range(self.tries):
            if attempt():
                return
            if turn == 0:
                say(f"  waiting for other sessions to release {what}")
            if self.stopped():
                break
            time.sleep(min(self.seconds, 1))
        raise Busy(f"{what}: other sessions hold locks (long transactions, prepared XA); tried {turn + 1} times")
