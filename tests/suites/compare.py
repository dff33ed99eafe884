"""The outcomes of one suite on two engines, test by test."""

from __future__ import annotations

from dataclasses import dataclass

from suites.run import Outcomes
from suites.table import Suite

NOT_RUN = "not run"
LAST_LINES = 6


@dataclass(frozen=True)
class Difference:
    """A test with two outcomes."""

    test: str
    one: str
    two: str
    why: str
    """What the test said on the engine where it did not pass."""
    reason: str | None
    """Why it may differ."""

    @property
    def better(self) -> bool:
        """Only the engine under test passes it."""
        return self.two == "passed"

    @property
    def counts(self) -> bool:
        """Fails the stage."""
        return not self.better and self.reason is None

    def text(self) -> str:
        """For a person."""
        head = f"{self.test}: {self.one} on the reference engine, {self.two} on the engine under test"
        if self.reason:
            return f"explained: {head}: {self.reason}"
        lines = [f"    {line}" for line in self.why.splitlines()[-LAST_LINES:]]
        return "\n".join([("note: " if self.better else "DIFFERENCE: ") + head, *lines])


def differences(suite: Suite, one: Outcomes, two: Outcomes) -> list[Difference]:
    """Every test that did not end in the same way."""
    found = []
    for test in sorted(one.tests.keys() | two.tests.keys()):
        first, second = one.tests.get(test, NOT_RUN), two.tests.get(test, NOT_RUN)
        if first == second:
            continue
        why = (one if second == "passed" else two).reasons.get(test, "")
        reason = next((x.reason for x in suite.explained if x.fits(test)), None)
        found.append(Difference(test, first, second, why, reason))
    return found
