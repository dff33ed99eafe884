"""Medians, spreads, ratios of pairs: the arithmetic, without any I/O."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """A median between the least and the greatest value."""

    median: float
    low: float
    high: float
    count: int

    @property
    def relative(self) -> float:
        """Half the width as a share of the median."""
        return (self.high - self.low) / 2 / abs(self.median) if self.median else 0.0


def spread(values: Iterable[float]) -> Spread | None:
    """None of nothing."""
    items = sorted(values)
    if not items:
        return None
    return Spread(statistics.median(items), items[0], items[-1], len(items))


def paired_ratio(ours: dict[int, float], theirs: dict[int, float]) -> Spread | None:
    """Ratio ours / theirs of the values measured in the same round."""
    return spread(ours[r] / theirs[r] for r in sorted(ours.keys() & theirs.keys()) if theirs[r])


def percentile_of_histogram(buckets: Sequence[tuple[float, int]], share: float) -> float:
    """The value below which that share of a sorted histogram lies, to the bucket's precision."""
    total = sum(count for _, count in buckets)
    wanted, seen = total * share, 0
    for value, count in buckets:
        seen += count
        if seen >= wanted and count:
            return value
    return buckets[-1][0] if buckets else 0.0


def mean(values: Sequence[float]) -> float:
    """0 of nothing."""
    return sum(values) / len(values) if values else 0.0
