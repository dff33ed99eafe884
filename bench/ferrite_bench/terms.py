"""What experiments, servers and sessions have in common: sizes, what a server must offer, marks on a timeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

T = TypeVar("T")

OPEN = "snapshot opened"
CLOSED = "snapshot closed"


@dataclass(frozen=True)
class Size:
    """How large a run is: smoke (does it work), quick (a first look), full (a claim)."""

    name: Literal["smoke", "quick", "full"]
    rounds: int
    """Default number of interleaved rounds."""

    def pick(self, smoke: T, quick: T, full: T) -> T:
        """The value for this size."""
        return {"smoke": smoke, "quick": quick, "full": full}[self.name]


SIZES = {"smoke": Size("smoke", 1), "quick": Size("quick", 3), "full": Size("full", 3)}


@dataclass(frozen=True)
class Needs:
    """What a setup asks of its servers, in words that fit every engine."""

    pool_mb: int = 512
    flush: int = 1
    """1: durable at commit; 2: written at commit, flushed once a second."""
    binlog: int | None = None
    """None: no binlog; otherwise sync_binlog."""
    binlog_mb: int = 1024
    sessions: int = 64
    iops: int | None = None
    """Limit of the volume, in I/O requests a second, each for reads and writes."""
    tcp: bool = False
    """A port of the loopback interface, for load generators that know no sockets."""
    options: tuple[str, ...] = ()
