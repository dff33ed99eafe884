"""A made-up run of any experiment, for tests of what comes after measuring. Its numbers are formulas, not results."""

from __future__ import annotations

import math
from pathlib import Path

from ferrite_bench.engines import ENGINES
from ferrite_bench.run import contestants_of
from ferrite_bench.store import Place, Writer
from ferrite_bench.terms import CLOSED, OPEN, SIZES
from ferrite_bench.workloads.base import Bars, Curve, Experiment, Timeline


def write_run(
    experiment: Experiment, out: Path, *, rounds: int = 2, factor: float = 1.0, problem: str = "", end: bool = True
) -> None:
    """Records of a whole run. `factor` makes everything that much larger."""
    writer = Writer(out, {"experiment": experiment.name, "commit": "0" * 12, "machine": "m"})
    words = ["ferrite", "innodb", "rocksdb"] + (["ceiling"] if experiment.ceiling else [])
    contestants = contestants_of(experiment, [ENGINES[w] for w in words])
    writer.line(
        "run",
        experiment=experiment.name,
        size="smoke",
        started="2026-01-01 00:00:00",
        commit="0" * 12,
        server="MariaDB 0",
        machine={"cpu": "none <made up>", "cpus": "2"},
        machine_id="m",
        rerun=f"./ferrite bench {experiment.name} --smoke",
        contestants=[
            {"key": c.key, "label": c.label, "engine": c.engine.key, "color": c.engine.color} for c in contestants
        ],
    )
    names = {"tps", "p99", experiment.headline, *experiment.extra_figures}
    names |= {c.figure for c in experiment.charts if isinstance(c, Curve | Bars)}
    metrics = {p.metric for c in experiment.charts if isinstance(c, Timeline) for p in c.panels}
    for setup in experiment.setups(SIZES["smoke"]):
        for rank, contestant in enumerate(contestants):
            writer.settings(Place(contestant.key, setup.name), ["--option=1", f"--of={contestant.key}"], "c", "A note.")
            for case in setup.cases:
                for number in range(1, rounds + 1):
                    place = Place(contestant.key, setup.name, case.name, case.series, case.x, number)
                    writer.command(place, f"sysbench {case.name}")
                    for name in sorted(names):
                        writer.figure(place, name, factor * (1000 - 150 * rank + 20 * number), "1/s", "higher")
                    writer.mark(place, 8, OPEN)
                    writer.mark(place, 30, CLOSED)
                    for second in range(1, 41):
                        height = factor * (900 - 120 * rank + 60 * math.sin(second / 3 + rank))
                        values = {m: height for m in metrics if not (m == "history" and rank == 2)}
                        writer.sample(place, second, values)
    if problem:
        writer.problem(Place(contestants[0].key, "", "some case"), problem)
    if end:
        writer.end(not problem)
    else:
        writer.close()
