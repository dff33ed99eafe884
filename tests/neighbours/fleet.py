"""What the scenarios share: a primary with the shop on it, its replica, the page, the programs, a directory for what is dumped."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from lib.places import Places
from lib.server import home_in_memory
from neighbours import shop
from neighbours.page import Page
from neighbours.place import Node, Programs, caught_up


class Fleet:
    """Servers that live as long as the test; each is started when a scenario first asks for it."""

    def __init__(self, places: Places, programs: Programs, page: Page) -> None:
        self.places, self.programs, self.page = places, programs, page
        self.backup = home_in_memory()
        self._closing = contextlib.ExitStack()
        self._closing.callback(shutil.rmtree, self.backup, True)
        self._primary: Node | None = None
        self._replica: Node | None = None
        self.archived = False
        """Whether orders have been moved to the archive: they count, too."""

    def close(self) -> None:
        """Remove everything."""
        self._closing.close()

    def started(self, number: int, *more: str) -> Node:
        """A new server, removed at the end."""
        node = Node(self.places, number, *more)
        self._closing.callback(node.remove)
        node.start()
        return node

    @property
    def primary(self) -> Node:
        """The server with the shop."""
        if self._primary is None:
            self._primary = self.started(1)
            shop.create(self._primary)
        return self._primary

    @property
    def replica(self) -> Node:
        """A server made of a dump of the primary, that replicates from it: as the page says."""
        if self._replica is None:
            self.run("dump", self.primary, {"/backup": str(self.backup)})
            self._replica = self.restored()
            self.replicate(self._replica)
        return self._replica

    def restored(self) -> Node:
        """A new server with what the dump holds."""
        node = self.started(2)
        self.run("restore", node, {"/backup": str(self.backup)})
        return node

    def replicate(self, node: Node) -> None:
        """It follows the primary from the position of the dump."""
        self.run("replica", node, {"'db1'": f"'127.0.0.1', MASTER_PORT={self.primary.port}"})
        self._replica = node

    def run(self, block: str, node: Node, here: dict[str, str], good: int = 0, more: str = "") -> str:
        """What a block of the page prints, run as by the administrator of that server; `more` options at its end."""
        text = self.page.block(block, here)
        return self.programs.run(f"{text} {more}".rstrip(), node.home, good)

    def settle(self, writers: shop.Writers) -> int:
        """The writers have stopped: primary and replica are consistent, whole and the same."""
        writers.stop()
        for node in [self.primary, *filter(None, [self._replica])]:
            if node is not self.primary:
                caught_up(node, self.primary)
            session = node.session()
            shop.consistent(session, writers.acknowledged(), self.archived)
            shop.whole(session)
        return shop.equal(self.primary, self._replica) if self._replica else 0

    def folder(self, name: str) -> Path:
        """An empty directory for a backup."""
        path = self.backup / name
        shutil.rmtree(path, ignore_errors=True)
        return path
