"""FROM TO RATE SECONDS: reads and writes so many bytes a second past the system's cache, and nothing else."""

from __future__ import annotations

import mmap
import os
import sys
import time

CHUNK = 1 << 20
SYNC_CHUNKS = 32


def copy(source: str, target: str, rate: float, seconds: float) -> None:
    """Over and over from the source's begin to its end."""
    buffer = mmap.mmap(-1, CHUNK)
    reads = os.open(source, os.O_RDONLY | os.O_DIRECT)
    writes = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
    size = os.fstat(reads).st_size // CHUNK * CHUNK
    begun, done = time.monotonic(), 0
    while time.monotonic() - begun < seconds:
        os.preadv(reads, [buffer], done % size)
        os.pwritev(writes, [buffer], done % size)
        done += CHUNK
        if done % (SYNC_CHUNKS * CHUNK) == 0:
            os.fdatasync(writes)
        time.sleep(max(0.0, begun + done / rate - time.monotonic()))
    os.unlink(target)


if __name__ == "__main__":
    copy(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
