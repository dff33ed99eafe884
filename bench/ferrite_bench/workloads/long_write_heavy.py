"""long-write-heavy: the load of `write-heavy` for an hour."""

from __future__ import annotations

from dataclasses import replace

from ferrite_bench.terms import Size
from ferrite_bench.workloads import write_heavy
from ferrite_bench.workloads.base import Setup


def _setups(size: Size) -> list[Setup]:
    return write_heavy.setups(size, 3600)[:1]


EXPERIMENT = replace(
    write_heavy.EXPERIMENT,
    name="long-write-heavy",
    title="Heavy writes for an hour",
    question="The experiment `write-heavy` measures ten minutes of constant writes. What happens in an hour?",
    method="As `write-heavy`, without the partitioned table.",
    setups=_setups,
    apart=True,
)
