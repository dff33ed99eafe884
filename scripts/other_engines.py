"""Which tables of a data directory are of other engines and have rows of their own: `other_engines.py DATADIR`.

Prints DATABASE/TABLE (ENGINE), one a line. The engine is read from the .frm files, so this needs no server: where the
rows are (a file of the table's own, InnoDB's system tablespace, another disk) does not matter. Databases may be links.
Nothing is written.
"""

import os
import sys

# Bytes of a .frm file: the engine's number, the length of the values at the end of the header, and the number of the
# partitions' engine. One of the values is the name of that engine; a file of MySQL has none.
ENGINE_AT, VALUES_LENGTH_AT, PARTITIONS_AT, PARTITIONED, VALUES_AT = 3, 4, 61, 20, 64
NAME_OF_PARTITIONS = 1
FIRST_DYNAMIC = 45
FERRITE = b"\x07\x00FERRITE"
# No rows, or none that outlive a restart: memory, merge, blackhole, performance_schema.
WITHOUT_ROWS = {6, 10, 19, 28}
NAMES = {
    9: "MyISAM",
    12: "InnoDB",
    16: "ARCHIVE",
    17: "CSV",
    18: "FEDERATED",
    42: "Aria",
}
# Databases of the server, and what a file system has at its mount point.
NOT_OF_USERS = {"lost+found", "mysql", "sys", "performance_schema"}


def partitions_engine(frm: bytes) -> bytes | None:
    """The name of the partitions' engine, from the values: each has a type, a length (0: two more bytes have it), and bytes."""
    at = VALUES_AT
    end = at + int.from_bytes(frm[VALUES_LENGTH_AT : VALUES_LENGTH_AT + 2], "little")
    while at + 3 <= min(end, len(frm)):
        kind, length = frm[at], frm[at + 1]
        at += 2
        if length == 0:
            length = int.from_bytes(frm[at : at + 2], "little")
            at += 2
        if kind == NAME_OF_PARTITIONS:
            return frm[at : at + length]
        at += length
    return None


def other_engine(frm: bytes) -> str | None:
    """The engine of this definition, or None if it is a view, of Ferrite, or has no rows."""
    if not frm.startswith(b"\xfe\x01") or len(frm) <= PARTITIONS_AT:
        return None
    kind = frm[ENGINE_AT]
    # Numbers from FIRST_DYNAMIC on are given out as plugins are loaded; the name is in the file, behind its length.
    if kind == PARTITIONED:
        kind = frm[PARTITIONS_AT]
        ours = kind >= FIRST_DYNAMIC and partitions_engine(frm) == FERRITE[2:]
    else:
        ours = kind >= FIRST_DYNAMIC and FERRITE in frm
    return None if ours or kind in WITHOUT_ROWS else NAMES.get(kind, "another engine")


def main() -> None:
    """Prints the tables."""
    home = sys.argv[1]
    for database in sorted(os.listdir(home)):
        path = os.path.join(home, database)
        if (
            database in NOT_OF_USERS
            or database.startswith(("#", "."))
            or not os.path.isdir(path)
        ):
            continue
        for name in sorted(os.listdir(path)):
            if not name.endswith(".frm") or name.startswith("#sql"):
                continue
            with open(os.path.join(path, name), "rb") as file:
                engine = other_engine(file.read())
            if engine is not None:
                print(f"{database}/{name.removesuffix('.frm')} ({engine})")


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"other_engines: {error}")
