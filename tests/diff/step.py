"""One step of a program: a statement for one of the sessions, and how its answer is to be compared."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """A statement; {E} in it is the engine's name, {e} the first word of its variables, {FILE} a local file."""

    sql: str
    session: int = 0
    ordered: bool = False
    """Rows are compared in their order; otherwise as a multiset."""
    kind: str = "exec"
    """exec; block: may wait for a lock, the answer then comes with collect; collect; pair: closes a deadlock;
    kill: KILL QUERY of the session; refused: only the reference engine can do it, the other one must say so;
    quiet: answers are not compared; disconnect: the session's client goes; close: all sessions close."""
    file: str | None = None
    """Content of the local file."""
    setup: bool = False
    """Part of the shape: the reducer does not drop it."""

    def render(self, engine_name: str, prefix: str, path: str = "") -> str:
        """The statement for one engine."""
        if "{" not in self.sql:
            return self.sql
        return self.sql.replace("{E}", engine_name).replace("{e}", prefix).replace("{FILE}", path)
