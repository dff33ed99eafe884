"""The committed list of tests that are known not to pass, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mtr.runner import BAD, Result

FILE = Path(__file__).parent / "expected-failures.txt"


@dataclass(frozen=True)
class Expected:
    """One line: a test, maybe one combination of it, and why it does not pass."""

    test: str
    combination: str
    reason: str


def expectations(path: Path = FILE) -> dict[tuple[str, str], Expected]:
    """Lines are 'suite.test reason' or 'suite.test,combination reason'; # starts a comment."""
    out: dict[tuple[str, str], Expected] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, _, reason = text.partition(" ")
        if not reason.strip():
            raise SystemExit(f"{path}:{number}: {name} has no reason")
        test, _, combination = name.partition(",")
        out[test, combination] = Expected(test, combination, reason.strip())
    return out


@dataclass
class Verdict:
    """One suite against the list."""

    unexpected: list[str]
    known: list[str]
    recovered: list[str]


def judge(result: Result, listed: dict[tuple[str, str], Expected]) -> Verdict:
    """Which failures are new, which are known, which listed tests pass."""
    verdict = Verdict([], [], [])
    for outcome in result.outcomes:
        expected = listed.get((outcome.name, outcome.combination)) or listed.get((outcome.name, ""))
        shown = f"{outcome.name}{',' + outcome.combination if outcome.combination else ''}"
        if outcome.state in BAD:
            (verdict.known if expected else verdict.unexpected).append(shown)
        elif outcome.state in ("pass", "retry-pass") and expected:
            verdict.recovered.append(shown)
    return verdict
