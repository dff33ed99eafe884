"""Where a restore ends in the files of a binary log: `binlog_end.py END POSITION FILE...`.

END is a GTID (D-S-N: behind that transaction) or @SECONDS since 1970 (before the first transaction of that time or a
later one). Reads the headers of the events, from POSITION of the first file on, and prints five words: the number of the
file (from 0), the offset in it, the GTID of the last transaction before it, how many transactions behind it have times
before SECONDS, and the last of these. A word that has no value is `-`. Exit code 1 if the GTID is not there, or not whole;
the reason is on stderr. Nothing is written.

Of an event it needs time, type and length (the first 19 bytes), of a GTID also the body, and of what can end a
transaction. What a statement says is never taken for an event. A transaction ends where something begins that is in no
transaction; if the file ends first, its last event must be one that ends a transaction, because a crash can cut a file
between two events, and a copy of a file that is written can end within one.
"""

import os
import struct
import sys
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

MAGIC = b"\xfebin"
HEADER = struct.Struct("<IBIIIH")
QUERY, STOP, ROTATE, FORMAT, XID, XA_PREPARE = 2, 3, 4, 15, 16, 38
CHECKPOINT, GTID, GTID_LIST, ENCRYPTION, QUERY_COMPRESSED = 161, 162, 163, 164, 165
OUTSIDE = {STOP, ROTATE, FORMAT, CHECKPOINT, GTID, GTID_LIST, ENCRYPTION}
WITH_BODY = {GTID, QUERY, QUERY_COMPRESSED}
STANDALONE, COMPLETED_XA = 1, 128


class NotThere(Exception):
    """The transaction is not in the log, or not all of it."""


class Event(NamedTuple):
    """An event's place, header, and body if that is needed; `cut` if the file ends within it."""

    at: int
    end: int
    when: int
    kind: int
    server: int
    body: bytes
    cut: bool


class Transaction(NamedTuple):
    """A transaction of a file; the offset behind it is right only if it is whole."""

    gtid: str
    when: int
    flags: int
    end: int
    whole: bool


def events(file: BinaryIO, at: int) -> Iterator[Event]:
    """The events of this file from an offset on."""
    length = os.fstat(file.fileno()).st_size
    while len(header := file.seek(at) and file.read(HEADER.size)) == HEADER.size:
        when, kind, server, size, _, _ = HEADER.unpack(header)
        if size < HEADER.size:
            raise NotThere(f"{file.name}: no event at {at}")
        if kind == ENCRYPTION:
            raise NotThere(f"{file.name} is encrypted")
        body = file.read(size - HEADER.size) if kind in WITH_BODY else b""
        yield Event(at, at + size, when, kind, server, body, at + size > length)
        at += size


def ends(event: Event, flags: int) -> bool:
    """Whether this can be the last event of a transaction with these flags. Behind its text may be a checksum."""
    if event.kind in (XID, XA_PREPARE):
        return True
    if event.kind not in (QUERY, QUERY_COMPRESSED):
        return False
    if flags & (STANDALONE | COMPLETED_XA):
        return True
    texts = (event.body, event.body[:-4])
    return any(text.endswith((b"COMMIT", b"ROLLBACK")) for text in texts)


def transactions(file: BinaryIO, at: int) -> Iterator[Transaction]:
    """The transactions of this file that begin at an offset or behind it."""
    now: Transaction | None = None
    for event in events(file, at):
        if now is not None and event.kind in OUTSIDE:
            yield now._replace(end=event.at, whole=True)
            now = None
        if event.kind == GTID and not event.cut:
            number, domain, flags = struct.unpack_from("<QIB", event.body)
            gtid = f"{domain}-{event.server}-{number}"
            now = Transaction(gtid, event.when, flags, event.end, False)
        elif now is not None:
            whole = not event.cut and ends(event, now.flags)
            now = now._replace(end=event.end, whole=whole)
    if now is not None:
        yield now


def in_files(names: list[str], start: int) -> Iterator[tuple[int, Transaction]]:
    """The transactions of all files, each with its file's number."""
    assert start >= len(MAGIC), "a position is behind the file's first four bytes"
    for index, name in enumerate(names):
        with open(name, "rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise NotThere(f"{name} is no file of a binary log")
            for found in transactions(file, start if index == 0 else len(MAGIC)):
                yield index, found


def behind_gtid(wanted: str, names: list[str], start: int) -> str:
    """File and offset behind the transaction with this GTID."""
    for index, found in in_files(names, start):
        if found.gtid == wanted:
            if not found.whole:
                raise NotThere(f"{names[index]} ends within the transaction")
            assert found.end > len(MAGIC), "a transaction takes room"
            return f"{index} {found.end} {found.gtid} 0 -"
    raise NotThere("it is in none of the files behind the backup's position")


def before_time(until: int, names: list[str], start: int) -> str:
    """File and offset behind the last transaction that no transaction of that time, or a later one, stands before.

    The server rolls back what a crash has cut; that is no transaction here.
    """
    end, last = (0, start), "-"
    earlier, last_earlier = 0, "-"
    stopped = False
    for index, found in in_files(names, start):
        if not found.whole:
            continue
        stopped = stopped or found.when >= until
        if not stopped:
            assert (index, found.end) > end, "transactions come in the log's order"
            end, last = (index, found.end), found.gtid
        elif found.when < until:
            earlier, last_earlier = earlier + 1, found.gtid
    return f"{end[0]} {end[1]} {last} {earlier} {last_earlier}"


def main() -> None:
    """Prints the place."""
    wanted, start, names = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    if wanted.startswith("@"):
        print(before_time(int(wanted[1:]), names, start))
    else:
        gtid = "-".join(str(int(part)) for part in wanted.split("-"))
        print(behind_gtid(gtid, names, start))


if __name__ == "__main__":
    try:
        main()
    except (NotThere, OSError, struct.error) as error:
        print(f"binlog_end: {error}", file=sys.stderr)
        sys.exit(1)
