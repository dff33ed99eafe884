"""Finds anomalies in a history of list-append transactions, as Adya defines them and Elle finds them (VLDB 2020).

Every key holds a list; a write appends one number that nobody else ever appends. The longest list seen of a key is therefore the order
of its versions, and every read tells which version it saw. Edges between committed transactions:

  ww  a appended directly before b      wr  b read a list that ends with a's number      rw  b appended directly after what a read

A cycle of ww edges is G0; of ww and wr edges G1c; with exactly one rw edge G-single (read skew, lost update); with more of them G2
(write skew). Reads of numbers that were rolled back are G1a, of a list that ends in the middle of a transaction G1b.

A commit is seen by others before it is durable, as with InnoDB. A transaction that changes something and has seen it is durable after
it; one that only reads waits for nobody, and if the server dies just then, it has read what is gone. Such reads are counted apart: of
commits that nobody was told of, by transactions that have changed nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Txn:
    """One transaction; what is not known to be committed or rolled back (a crash) is `open`."""

    number: int
    state: str = "open"
    """open, committed, aborted."""
    level: str = ""
    operations: list[tuple[str, int, object]] = field(default_factory=list)
    """("append", key, number) and ("read", key, list of numbers), in order; a locking read is "locked"."""


FORBIDDEN = {
    "READ UNCOMMITTED": ("G0", "order"),
    "READ COMMITTED": ("G0", "G1a", "G1b", "G1c", "order"),
    "REPEATABLE READ": ("G0", "G1a", "G1b", "G1c", "order", "snapshot"),
    "SERIALIZABLE": ("G0", "G1a", "G1b", "G1c", "G-single", "G2", "order"),
}
"""What a level rules out. At REPEATABLE READ plain reads see one snapshot, which is looked at directly; updates see the present."""

Edges = dict[int, set[int]]


class Checker:
    """Collects anomalies of one history: of transactions of one level, and the final lists."""

    def __init__(self, txns: Iterable[Txn], final: dict[int, list[int]], level: str) -> None:
        self.txns = {t.number: t for t in txns}
        self.level = level
        self.final = final
        self.found: list[tuple[str, str]] = []
        self.before_durable = 0
        """Reads, without changes, of a commit that nobody was told of and that a crash took back."""
        self.untold: set[int] = set()
        self.writer: dict[tuple[int, int], int] = {}
        """Key and number: the transaction that appended it."""
        self.last_of: dict[tuple[int, int], int] = {}
        """Key and transaction: the last number it appended there."""
        self.edges: dict[str, Edges] = {kind: defaultdict(set) for kind in ("ww", "wr", "rw")}

    def run(self) -> list[tuple[str, str]]:
        """Kind and description of each anomaly that the level forbids."""
        self._writers()
        self._decide_open()
        for txn in self.txns.values():
            if txn.state == "committed":
                self._reads(txn)
        self._version_edges()
        self._cycles()
        return [(kind, text) for kind, text in self.found if kind in FORBIDDEN[self.level] or kind == "lost"]

    def _writers(self) -> None:
        for txn in self.txns.values():
            for what, key, value in txn.operations:
                if what == "append":
                    assert isinstance(value, int)
                    self.writer[key, value] = txn.number
                    self.last_of[key, txn.number] = value

    def _decide_open(self) -> None:
        """A transaction whose end nobody told has committed if the final lists show it, and then as a whole."""
        there = {(key, n) for key, numbers in self.final.items() for n in numbers}
        for txn in self.txns.values():
            wrote = [(key, n) for what, key, n in txn.operations if what == "append" and isinstance(n, int)]
            present = [w for w in wrote if w in there]
            if txn.state == "open":
                self.untold.add(txn.number)
                txn.state = "committed" if present else "aborted"
            if txn.state == "committed" and len(present) < len(wrote):
                self.found.append(
                    ("lost", f"transaction {txn.number}: {len(wrote) - len(present)} of {len(wrote)} appends")
                )
            if txn.state == "aborted" and present:
                self.found.append(("lost", f"transaction {txn.number} was rolled back, {len(present)} appends stay"))

    def _reads(self, txn: Txn) -> None:
        own: dict[int, list[int]] = defaultdict(list)
        first: dict[int, list[int]] = {}
        for what, key, value in txn.operations:
            if what == "append":
                assert isinstance(value, int)
                own[key].append(value)
                continue
            assert isinstance(value, list)
            mine = own[key]
            numbers = value
            if mine:
                if numbers[-len(mine) :] != mine:
                    self.found.append(("order", f"transaction {txn.number} does not see its own appends to {key}"))
                continue
            self._read(txn, key, numbers)
            if what == "read" and first.setdefault(key, numbers) != numbers:
                self.found.append(("snapshot", f"transaction {txn.number} read two states of {key}"))

    def _read(self, txn: Txn, key: int, numbers: list[int]) -> None:
        """A read of another's version."""
        versions = self.final.get(key, [])
        for n in numbers:
            by = self.writer.get((key, n))
            if by is None or self.txns[by].state != "committed":
                if by in self.untold and all(what != "append" for what, _, _ in txn.operations):
                    self.before_durable += 1
                    return
                self.found.append(("G1a", f"transaction {txn.number} read {n} of {key}, which {by} did not commit"))
                return
        if numbers != versions[: len(numbers)]:
            self.found.append(("order", f"transaction {txn.number} read {numbers[-5:]} of {key}, no state it ever had"))
            return
        if numbers:
            by = self.writer[key, numbers[-1]]
            if self.last_of[key, by] != numbers[-1]:
                self.found.append(("G1b", f"transaction {txn.number} read the middle of {by} in {key}"))
            if by != txn.number:
                self.edges["wr"][by].add(txn.number)
        if len(numbers) < len(versions):
            after = self.writer[key, versions[len(numbers)]]
            if after != txn.number:
                self.edges["rw"][txn.number].add(after)

    def _version_edges(self) -> None:
        for key, numbers in self.final.items():
            for one, two in zip(numbers, numbers[1:], strict=False):
                a, b = self.writer.get((key, one)), self.writer.get((key, two))
                if a is None or b is None:
                    self.found.append(("order", f"key {key} holds a number that nobody appended"))
                elif a != b:
                    self.edges["ww"][a].add(b)

    def _cycles(self) -> None:
        for kind, kinds in (("G0", ("ww",)), ("G1c", ("ww", "wr")), ("G2", ("ww", "wr", "rw"))):
            for group in components(merged(self.edges[k] for k in kinds)):
                rw = sum(1 for a in group for b in self.edges["rw"].get(a, ()) if b in group)
                name = "G-single" if kind == "G2" and rw == 1 else kind
                self.found.append((name, f"a cycle among transactions {sorted(group)[:8]}"))


def merged(parts: Iterable[Edges]) -> Edges:
    """All edges in one graph."""
    out: Edges = defaultdict(set)
    for part in parts:
        for a, targets in part.items():
            out[a] |= targets
    return out


def components(edges: Edges) -> list[set[int]]:
    """Strongly connected components of more than one node (Tarjan 1972, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[set[int]] = []
    for root in list(edges):
        if root in index:
            continue
        work = [(root, iter(edges.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, targets = work[-1]
            step = next(targets, None)
            if step is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    found.append(_take(stack, on_stack, node))
            elif step not in index:
                index[step] = low[step] = len(index)
                stack.append(step)
                on_stack.add(step)
                work.append((step, iter(edges.get(step, ()))))
            elif step in on_stack:
                low[node] = min(low[node], index[step])
    return [group for group in found if len(group) > 1]


def _take(stack: list[int], on_stack: set[int], node: int) -> set[int]:
    group = set()
    while True:
        top = stack.pop()
        on_stack.discard(top)
        group.add(top)
        if top == node:
            return group
