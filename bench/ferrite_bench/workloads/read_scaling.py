"""read-scaling: readers from 1 to 1,024 sessions, the server on one processor and on two."""

from __future__ import annotations

import os

from ferrite_bench.load import Load, Sysbench
from ferrite_bench.session import Session
from ferrite_bench.terms import Needs, Size
from ferrite_bench.workloads.base import Case, Curve, Data, Experiment, Setup
from ferrite_bench.workloads.common import oltp, oltp_data


def _case(name: str, load: Load, cpus: int, series: str, sessions: int) -> Case:
    def run(session: Session) -> None:
        session.server.bind_cpus(cpus)
        session.load(load)

    return Case(name, run, load.seconds + 0.8, series, sessions)


def _processors() -> tuple[int, ...]:
    return (1, 2) if (os.cpu_count() or 1) >= 2 else (1,)


def _on(cpus: int) -> str:
    return f"{cpus} CPU" if cpus == 1 else f"{cpus} CPUs"


def _setups(size: Size) -> list[Setup]:
    objects = size.pick(500, 20_000, 200_000)
    rows = size.pick(2_000, 100_000, 1_000_000)
    steps = size.pick((1, 8), (1, 16, 1024), tuple(2**n for n in range(11)))

    def build(session: Session) -> None:
        session.prepare("stress", f"--objects={objects}", "--mix=sel1", own=True)

    joins, mixes = [], []
    for n in steps:
        for cpus in _processors():
            if cpus == 1 and n not in (1, 8, 64, 1024):
                continue
            options = (f"--objects={objects}", "--mix=sel1")
            join = Sysbench("stress", n, 1, options, own=True)
            series = f"point join, {_on(cpus)}"
            joins.append(_case(f"{series}, {n} sessions", join, cpus, series, n))
            if size.name != "smoke" and (cpus == 1 or n not in (1, 4, 64, 1024)):
                continue
            series = f"read-only mix, {_on(cpus)}"
            mixes.append(_case(f"{series}, {n} sessions", oltp("oltp_read_only", n, 1, rows), cpus, series, n))
    needs = Needs(pool_mb=size.pick(64, 512, 2048), sessions=max(steps))
    data = Data("objects", build, objects // 500 + 64, 1 + objects / 60_000)
    rounds = size.pick(1, 4, 8)
    return [
        Setup("point join", needs, data, tuple(joins), rounds),
        Setup("read-only mix", needs, oltp_data(rows), tuple(mixes), rounds),
    ]


EXPERIMENT = Experiment(
    name="read-scaling",
    title="Readers from 1 to 1,024 sessions",
    question="Only reading, everything in memory, ever more sessions: does the curve stay flat once the processors are "
    "busy, or does it fall?",
    method="SEL1, a point join over three tables by their primary keys, and sysbench oltp_read_only. The server is bound "
    "to one processor or to two; the client may use all of them.",
    story="After the notes of 2011 on MySQL 5.6 with 48 cores: one lock after another gave way, and throughput fell from "
    "64 sessions on.",
    setups=_setups,
    charts=(
        Curve("Point join, server on 2 CPUs", "tps", "sessions", ("point join, 2 CPUs",)),
        Curve("Point join, server on 1 CPU", "tps", "sessions", ("point join, 1 CPU",)),
        Curve("Read-only mix, server on 2 CPUs", "tps", "sessions", ("read-only mix, 2 CPUs",)),
        Curve("Context switches per point join, 2 CPUs", "switches_per_txn", "sessions", ("point join, 2 CPUs",)),
        Curve("p99 latency of a point join, 2 CPUs", "p99", "sessions", ("point join, 2 CPUs",), log_y=True),
    ),
    ceiling=True,
)
