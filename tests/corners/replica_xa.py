"""Distributed transactions on a replica: between PREPARE and the decision stand others in the stream, which must come past what is
prepared as they did on the primary."""

from __future__ import annotations

from corners.env import Env, Session
from corners.replica_order import Pair, replica_pair
from corners.replicas import catch_up, session_on


def _prepare(session: Session, change: str) -> None:
    session.run("SET binlog_format = ROW")
    for sql in ("XA START 'x'", change, "XA END 'x'", "XA PREPARE 'x'"):
        session.run(sql)


def _gap_of_a_changed_row(pair: Pair) -> None:
    """The other has inserted before the row was read; the replica reads the row before the other inserts."""
    pair.first.run("CREATE OR REPLACE TABLE n (k INT, x INT, KEY (k))")
    pair.first.run("INSERT INTO n VALUES (5, 1), (11, 1)")
    other, changes = session_on(pair.primary), session_on(pair.primary)
    other.run("SET binlog_format = ROW")
    other.run("BEGIN")
    other.run("INSERT INTO n VALUES (10, 1)")
    _prepare(changes, "UPDATE n SET x = x + 1 WHERE k = 11")
    other.run("COMMIT")
    changes.run("XA COMMIT 'x'")


def _rows_that_were_read(pair: Pair) -> None:
    """Without a key a row event reads all rows before the one that it changes."""
    pair.first.run("CREATE OR REPLACE TABLE n (k INT, x INT)")
    pair.first.run("INSERT INTO n VALUES (1, 1), (1, 2), (1, 3), (1, 4)")
    other, changes = session_on(pair.primary), session_on(pair.primary)
    for session in (other, changes):
        session.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    _prepare(changes, "UPDATE n SET x = x + 10 WHERE x = 3")
    other.run("SET binlog_format = ROW")
    other.run("UPDATE n SET x = x + 20 WHERE x = 1")
    changes.run("XA ROLLBACK 'x'")
    changes.run("INSERT INTO n VALUES (9, 9)")


def scenario_others_come_past(env: Env) -> None:
    """The replica stood still behind gaps, and rows that were only read, until 1205 stopped it; and again after START SLAVE."""
    with replica_pair() as pair:
        pair.follower.run("START SLAVE")
        for play in (_gap_of_a_changed_row, _rows_that_were_read):
            play(pair)
            catch_up(pair.primary, pair.follower, 50)
            pair.compare_table("n", play.__name__)
