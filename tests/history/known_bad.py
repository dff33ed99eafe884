"""Histories whose anomaly is known: the checker must find each, and nothing in the good one."""

from __future__ import annotations

from history.anomalies import Checker, Txn

Operations = list[tuple[str, int, object]]


def _txn(number: int, operations: Operations, state: str = "committed") -> Txn:
    return Txn(number, state, "", operations)


CASES: list[tuple[str, str, list[Txn], dict[int, list[int]]]] = [
    (
        "good",
        "",
        [_txn(1, [("append", 1, 10), ("append", 2, 20)]), _txn(2, [("read", 1, [10]), ("append", 1, 11)])],
        {1: [10, 11], 2: [20]},
    ),
    (
        "dirty write",
        "G0",
        [_txn(1, [("append", 1, 10), ("append", 2, 20)]), _txn(2, [("append", 1, 11), ("append", 2, 21)])],
        {1: [10, 11], 2: [21, 20]},
    ),
    ("aborted read", "G1a", [_txn(1, [("append", 1, 10)], "aborted"), _txn(2, [("read", 1, [10])])], {1: []}),
    (
        "intermediate read",
        "G1b",
        [_txn(1, [("append", 1, 10), ("append", 1, 11)]), _txn(2, [("read", 1, [10])])],
        {1: [10, 11]},
    ),
    (
        "circular information flow",
        "G1c",
        [_txn(1, [("append", 1, 10), ("read", 2, [20])]), _txn(2, [("append", 2, 20), ("read", 1, [10])])],
        {1: [10], 2: [20]},
    ),
    (
        "lost update",
        "G-single",
        [
            _txn(1, [("append", 1, 10)]),
            _txn(2, [("read", 1, [10]), ("append", 1, 11)]),
            _txn(3, [("read", 1, [10]), ("append", 1, 12)]),
        ],
        {1: [10, 11, 12]},
    ),
    (
        "write skew",
        "G2",
        [_txn(1, [("read", 1, []), ("append", 2, 20)]), _txn(2, [("read", 2, []), ("append", 1, 10)])],
        {1: [10], 2: [20]},
    ),
    (
        "read of a commit that a crash took back, by a transaction that has changed something",
        "G1a",
        [_txn(1, [("append", 1, 10)], "open"), _txn(2, [("read", 1, [10]), ("append", 2, 20)])],
        {1: [], 2: [20]},
    ),
    (
        "the same, by one that only reads",
        "",
        [_txn(1, [("append", 1, 10)], "open"), _txn(2, [("read", 1, [10])])],
        {1: []},
    ),
    ("lost commit", "lost", [_txn(1, [("append", 1, 10)])], {1: []}),
    ("half a commit", "lost", [_txn(1, [("append", 1, 10), ("append", 2, 20)], "open")], {1: [10], 2: []}),
    (
        "two states",
        "snapshot",
        [_txn(1, [("append", 1, 10)]), _txn(2, [("read", 1, []), ("read", 1, [10])])],
        {1: [10]},
    ),
]


def failures() -> list[str]:
    """Cases that the checker gets wrong."""
    wrong = []
    for name, expected, txns, final in CASES:
        level = "REPEATABLE READ" if expected == "snapshot" else "SERIALIZABLE"
        kinds = {kind for kind, _ in Checker(txns, final, level).run()}
        if kinds != ({expected} if expected else set()) and not (expected and expected in kinds):
            wrong.append(f"{name}: expected {expected or 'nothing'}, found {sorted(kinds)}")
    return wrong
