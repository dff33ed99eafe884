"""Where a transaction ends in the files of a binary log: `binlog_end.py D-S-N POSITION FILE...`.

Reads the headers of the events, from POSITION of the first file on, and prints the number of the file (from 0) and the
offset behind the transaction's last event. Exit code 1 if it is not there, or not whole; the reason is on stderr. Nothing
is written.

Of an event it needs type and length (the first 19 bytes), of a GTID also the body. What a statement says is never taken
for an event. A transaction ends where something begins that is in no transaction; if the file ends first, its last event
must be one that ends a transaction, because a crash can cut a file between two events.
"""

import struct
import sys
from typing import BinaryIO

MAGIC = b"\xfebin"
HEADER = struct.Struct("<IBIIIH")
QUERY, STOP, ROTATE, FORMAT, XID, XA_PREPARE = 2, 3, 4, 15, 16, 38
CHECKPOINT, GTID, GTID_LIST, ENCRYPTION, QUERY_COMPRESSED = 161, 162, 163, 164, 165
OUTSIDE = {STOP, ROTATE, FORMAT, CHECKPOINT, GTID, GTID_LIST, ENCRYPTION}
STANDALONE, COMPLETED_XA = 1, 128


class NotThere(Exception):
    """The transaction is not in the log, or not all of it."""


def ends(kind: int, body: bytes, flags: int) -> bool:
    """Whether this event can be the last of a transaction with these flags. Behind its text may be a checksum."""
    if kind in (XID, XA_PREPARE):
        return True
    if kind not in (QUERY, QUERY_COMPRESSED):
        return False
    if flags & (STANDALONE | COMPLETED_XA):
        return True
    return any(text.endswith((b"COMMIT", b"ROLLBACK")) for text in (body, body[:-4]))


def end_in(file: BinaryIO, at: int, wanted: tuple[int, int, int]) -> int | None:
    """The offset behind the transaction in this file, or None."""
    flags: int | None = None
    whole = False
    while len(header := file.seek(at) and file.read(HEADER.size)) == HEADER.size:
        _, kind, server, size, _, _ = HEADER.unpack(header)
        if size < HEADER.size:
            raise NotThere(f"{file.name}: no event at {at}")
        if flags is not None and kind in OUTSIDE:
            return at
        if kind == ENCRYPTION:
            raise NotThere(f"{file.name} is encrypted")
        body = (
            file.read(size - HEADER.size) if flags is not None or kind == GTID else b""
        )
        if kind == GTID:
            number, domain, bits = struct.unpack_from("<QIB", body)
            if (domain, server, number) == wanted:
                flags = bits
        elif flags is not None:
            whole = len(body) == size - HEADER.size and ends(kind, body, flags)
        at += size
    if flags is None:
        return None
    if not whole:
        raise NotThere(f"{file.name} ends within the transaction")
    return at


def main() -> None:
    """Prints file and offset."""
    domain, server, number = (int(part) for part in sys.argv[1].split("-"))
    start = int(sys.argv[2])
    assert start >= len(MAGIC), "a position is behind the file's first four bytes"
    for index, name in enumerate(sys.argv[3:]):
        with open(name, "rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise NotThere(f"{name} is no file of a binary log")
            end = end_in(
                file, start if index == 0 else len(MAGIC), (domain, server, number)
            )
        if end is not None:
            assert end > len(MAGIC), "a transaction takes room"
            print(index, end)
            return
    raise NotThere("it is in none of the files behind the backup's position")


if __name__ == "__main__":
    try:
        main()
    except (NotThere, OSError, struct.error) as error:
        print(f"binlog_end: {error}", file=sys.stderr)
        sys.exit(1)
