"""All experiments: every module here with an EXPERIMENT is one, in the order of ORDER."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from ferrite_bench.errors import Usage
from ferrite_bench.workloads.base import Experiment

ORDER = (
    "queue",
    "long-queue",
    "long-snapshot",
    "hot-rows",
    "secondary-churn",
    "wide-updates",
    "many-snapshots",
    "steady-writes",
    "write-heavy",
    "long-write-heavy",
    "big-transaction",
    "group-commit",
    "commit-latency",
    "binlog",
    "tpcc",
    "go-tpc",
    "point-read",
    "read-scaling",
    "in-list",
    "scan",
    "load",
    "insert-benchmark",
    "bigger-than-memory",
    "skewed",
    "slow-volume",
    "size-after-churn",
    "recovery-time",
)


@cache
def experiments() -> dict[str, Experiment]:
    """Name -> experiment."""
    found = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        item = getattr(module, "EXPERIMENT", None)
        if isinstance(item, Experiment):
            found[item.name] = item
    rank = {name: i for i, name in enumerate(ORDER)}
    return dict(sorted(found.items(), key=lambda pair: (rank.get(pair[0], len(rank)), pair[0])))


def experiment(name: str) -> Experiment:
    """Look one up by name."""
    try:
        return experiments()[name]
    except KeyError:
        raise Usage(f"no experiment '{name}': one of {', '.join(experiments())}, or all") from None
