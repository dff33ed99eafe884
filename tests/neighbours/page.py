"""The commands of docs/operating/neighbours.md, and of the drills in guide.md, so that what is run is what the pages show.

Each block of it has a comment in front, `<!-- test: NAME -->`. A scenario asks for blocks by their names, with what stands for
the reader's directories and machines. A block of commands without a
name, or one that nothing has run, is a fault of the page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from neighbours.place import Failed

PAGES = (Path("docs/operating/neighbours.md"), Path("docs/operating/guide.md"))
_SHELL = re.compile(r"^```sh$", re.MULTILINE)
_BLOCK = re.compile(r"^<!-- test: (\w+) -->\n```(\w+)\n(.*?)\n```$", re.MULTILINE | re.DOTALL)


class Page:
    """The blocks of both pages, and which of them have been asked for."""

    def __init__(self, root: Path) -> None:
        self._blocks: dict[str, str] = {}
        self._used: set[str] = set()
        for page in PAGES:
            text = (root / page).read_text(encoding="utf-8")
            found = _BLOCK.findall(text)
            if sum(kind == "sh" for _, kind, _ in found) != len(_SHELL.findall(text)):
                raise Failed(f"{page}: a block of commands has no name in front")
            for name, _, body in found:
                if name in self._blocks:
                    raise Failed(f"{page}: there are two blocks {name}")
                self._blocks[name] = body

    def block(self, name: str, here: Mapping[str, str]) -> str:
        """The text of a block; each word of `here` is in it, and something else stands for it."""
        if name not in self._blocks:
            raise Failed(f"no page has a block {name}")
        self._used.add(name)
        text = self._blocks[name]
        for word, instead in here.items():
            if word not in text:
                raise Failed(f"block {name}: there is no {word!r} in it")
            text = text.replace(word, instead)
        return text

    def unused(self) -> list[str]:
        """Blocks that nothing has asked for."""
        return sorted(self._blocks.keys() - self._used)
