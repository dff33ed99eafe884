"""Runs in the suite's own process: writes the outcome of each test as a line of JSON."""

from __future__ import annotations

import json
import os
from typing import Any


def record(test: str, outcome: str, why: object = "") -> None:
    """passed, skipped or failed; a test can have several lines, of which the worst counts."""
    line = {"test": test, "outcome": outcome, "why": str(why).strip()[-4000:]}
    with open(os.environ["FERRITE_SUITE_OUTCOMES"], "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def pytest_runtest_logreport(report: Any) -> None:
    """A plugin of pytest: one call for each of setup, call and teardown."""
    if report.when == "call" or report.outcome != "passed":
        outcome = "passed" if hasattr(report, "wasxfail") and report.outcome == "skipped" else report.outcome
        record(report.nodeid, outcome, "" if outcome == "passed" else report.longrepr)


def pytest_collectreport(report: Any) -> None:
    """A module that cannot be imported has no tests, which must not look like success."""
    if report.outcome == "failed":
        record(report.nodeid, "failed", report.longrepr)
