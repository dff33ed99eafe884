"""Snapshots and the binary log: the position that a consistent snapshot is given is that of what it sees."""

from __future__ import annotations

import re
import threading
import time

from corners.env import Env, Session, equal, expect

# Groups of several transactions: the commits of a group become visible one after the other.
OPTIONS = [
    "--log-bin=corners-bin",
    "--server-id=1",
    "--sync-binlog=0",
    "--binlog-commit-wait-count=3",
    "--binlog-commit-wait-usec=2000",
]
WRITERS = 4
SNAPSHOTS = 100
MINE = re.compile(r"VALUES \((\d+)\)")
Place = tuple[str, int]


def _place(session: Session) -> Place:
    """Where the binary log stood when the session's snapshot was taken."""
    status = dict(session.run("SHOW STATUS LIKE 'binlog_snapshot_%'"))
    return status["Binlog_snapshot_file"], int(status["Binlog_snapshot_position"])


def _snapshot(session: Session) -> tuple[Place, set[int], set[int]]:
    """Position, and the rows of both tables, of a new snapshot."""
    session.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    place = _place(session)
    rows = [{int(row[0]) for row in session.run(f"SELECT a FROM {table}")} for table in ("t", "other")]
    equal(_place(session), place, "the position of an open snapshot")
    session.run("COMMIT")
    return place, rows[0], rows[1]


def _logged(session: Session) -> list[tuple[Place, Place, list[int]]]:
    """Begin, end and rows of each transaction, in the order of the binary log."""
    done: list[tuple[Place, Place, list[int]]] = []
    for name, *_ in session.run("SHOW BINARY LOGS"):
        rows: list[int] = []
        begin = (name, 0)
        for _, at, kind, _, end, info in session.run(f"SHOW BINLOG EVENTS IN '{name}'"):
            if kind == "Gtid":
                rows, begin = [], (name, int(at))
            elif kind == "Xid":
                done.append((begin, (name, int(end)), rows))
            else:
                rows += [int(number) for number in MINE.findall(info)]
    return done


def _write(env: Env, number: int, stop: threading.Event) -> None:
    """Transactions of one to three rows, each with savepoints and a part taken back; some roll back."""
    session = env.session(autocommit=False)
    mine = number * 1_000_000
    while not stop.is_set():
        for table in ("t", "t", "other")[: 1 + mine % 3]:
            session.run(f"INSERT INTO {table} VALUES ({mine})")
            session.run("SAVEPOINT s")
            session.run(f"INSERT INTO {table} VALUES ({mine + 500_000})")
            session.run("ROLLBACK TO s")
            mine += 1
        session.run("ROLLBACK" if mine % 7 == 0 else "COMMIT")


def _prove(env: Env, other_engine: str) -> None:
    session = env.session()
    session.run("RESET MASTER")
    session.run("SET GLOBAL binlog_format = STATEMENT")
    session.run("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=FERRITE")
    session.run(f"CREATE TABLE other (a INT PRIMARY KEY) ENGINE={other_engine}")
    stop = threading.Event()
    failed: list[BaseException] = []

    def writer(number: int) -> None:
        try:
            _write(env, number, stop)
        except BaseException as e:
            failed.append(e)

    writers = [threading.Thread(target=writer, args=(n,), daemon=True) for n in range(1, WRITERS + 1)]
    for thread in writers:
        thread.start()
    seen = []
    for number in range(SNAPSHOTS):
        time.sleep(0.01)
        seen.append(_snapshot(session))
        if number % 40 == 20:
            session.run("FLUSH BINARY LOGS")
    stop.set()
    for thread in writers:
        thread.join()
    expect(not failed, "a writer failed", failed)
    logged = _logged(session)
    expect(len(logged) > SNAPSHOTS, "too few transactions", len(logged))
    for place, t, other in seen:
        wanted = {row for _, end, rows in logged if end <= place for row in rows}
        equal(t | other, wanted, f"rows of the snapshot at {place}")
        inside = [begin for begin, end, _ in logged if begin < place < end]
        equal(inside, [], f"transactions that {place} cuts")
    expect(len({place for place, _, _ in seen}) > SNAPSHOTS // 4, "the snapshots stood still", seen[-1][0])


def scenario_a_snapshot_and_its_position(env: Env) -> None:
    """What a consistent snapshot sees is what the binary log has up to its position, beside grouped commits."""
    _prove(env, "FERRITE")


def scenario_one_position_for_two_engines(env: Env) -> None:
    """The same of transactions with InnoDB: one snapshot of both engines, at one position."""
    _prove(env, "InnoDB")


def scenario_a_position_without_writers(env: Env) -> None:
    """The position is that of the last commit, whatever is open, and stays while the snapshot does."""

    def play(engine: str) -> list[object]:
        session, other = env.session(), env.session(autocommit=False)
        session.run(f"CREATE TABLE t (a INT PRIMARY KEY) ENGINE={engine}")
        seen: list[object] = []
        for number in range(3):
            session.run(f"INSERT INTO t VALUES ({number})")
            other.run(f"INSERT INTO t VALUES ({number + 100})")
            file, position = session.run("SHOW MASTER STATUS")[0][:2]
            session.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            seen.append(_place(session) == (file, int(position)))
            other.run("COMMIT")
            seen.append(_place(session) == (file, int(position)))
            seen.append(session.run("SELECT a FROM t ORDER BY a"))
            session.run("COMMIT")
            now = session.run("SHOW MASTER STATUS")[0][:2]
            seen.append(_place(session) == (now[0], int(now[1])))
        return seen

    answers = env.same_as_innodb(play)
    for first in range(0, len(answers), 4):
        equal(answers[first : first + 2] + answers[first + 3 : first + 4], [True] * 3, "positions")
