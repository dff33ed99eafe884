"""Runs in Django's own process: its test runner, with the outcomes written down."""

from __future__ import annotations

import traceback
import unittest
from typing import Any

from django.test.runner import DiscoverRunner  # type: ignore[import-not-found]
from outcomes import record  # type: ignore[import-not-found]


class Result(unittest.TextTestResult):
    """unittest's own result, which also records."""

    def addSuccess(self, test: Any) -> None:
        super().addSuccess(test)
        record(_name(test), "passed")

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        record(_name(test), "failed", _words(err))

    def addFailure(self, test: Any, err: Any) -> None:
        super().addFailure(test, err)
        record(_name(test), "failed", _words(err))

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            record(_name(test), "failed", f"{subtest}: {_words(err)}")

    def addSkip(self, test: Any, reason: str) -> None:
        super().addSkip(test, reason)
        record(_name(test), "skipped", reason)

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        super().addExpectedFailure(test, err)
        record(_name(test), "passed")

    def addUnexpectedSuccess(self, test: Any) -> None:
        super().addUnexpectedSuccess(test)
        record(_name(test), "failed", "unexpected success")


class Runner(DiscoverRunner):  # type: ignore[misc]
    """What the settings name as TEST_RUNNER."""

    def get_resultclass(self) -> type[unittest.TextTestResult]:
        return Result


def _name(test: Any) -> str:
    """A part of a test (`subTest`) counts for the whole."""
    name: str = getattr(test, "test_case", test).id()
    return name


def _words(err: Any) -> str:
    return "".join(traceback.format_exception(*err))
