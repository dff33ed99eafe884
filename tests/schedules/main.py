"""Lock schedules: generated schedules of two or three sessions, run on InnoDB and on Ferrite; each statement must be granted, wait
or end in a deadlock in the same way."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from lib.engines import engine
from lib.places import find_places
from lib.server import Server, home_in_memory, stop_on_signals
from schedules.draw import Drawer, Schedule
from schedules.known import known_kind
from schedules.play import CERTAIN_LOOKS, DEADLOCK, PATIENT_LOOKS, STEADY_LOOKS, Evidence, Outcome, Player, Wait

LEVELS = ("REPEATABLE READ", "READ COMMITTED", "READ UNCOMMITTED", "SERIALIZABLE")
Story = list[list[tuple[int, Outcome]]]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./ferrite test schedules", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=2000, help="schedules per isolation level")
    parser.add_argument("--first", type=int, default=0, help="number of the first schedule")
    parser.add_argument("--level", action="append", default=[], help="one isolation level; default: all")
    parser.add_argument("--engines", default="innodb,ferrite", help="reference engine, engine under test")
    parser.add_argument("--show", type=int, default=10, help="differences to print")
    parser.add_argument("--ci", action="store_true", help="150 per level")
    arguments = parser.parse_args()
    if arguments.ci:
        arguments.count = min(arguments.count, 150)
    return arguments


@dataclass
class Totals:
    """What a run has seen."""

    schedules: int = 0
    known: Counter[str] = field(default_factory=Counter)
    differences: Counter[str] = field(default_factory=Counter)
    """Per isolation level."""
    shown: int = 0
    hasty: int = 0
    """Differed, but not when played once more with longer looks."""
    races: int = 0
    """Two statements that had waited went on at once, and who was faster decided."""


def _player(name: str) -> Player:
    kind = engine(name)
    options = [
        kind.flush(0),
        kind.pool("64M"),
        kind.lock_wait(100),
        "--innodb-stats-persistent=0",
        "--innodb-flush-method=nosync",
        "--innodb-purge-threads=1",
        "--loose-ferrite-use-direct-io=0",
        "--sync-frm=0",
    ]
    server = Server(find_places(), kind, options, home_in_memory())
    server.start()
    return Player(server)


def play(player: Player, schedule: Schedule, level: str) -> Story:
    """The whole story on one side; it ends with the first deadlock, since the victim is the engine's choice."""
    player.prepare(schedule, level)
    story: Story = []
    for act in schedule.acts:
        story.append(player.act(act))
        if any(outcome.detail == str(DEADLOCK) for _, outcome in story[-1]):
            story[-1] = [(act.session, Outcome("deadlock"))]
            player.settle()
            return story
    player.settle()
    story.append([(-1, player.rows())])
    return story


def both(players: tuple[Player, Player], schedule: Schedule, level: str, looks: int) -> tuple[Story, Story]:
    """Both sides at the same time."""
    for player in players:
        player.looks = looks
    stories: list[Story | Exception] = [[], []]

    def side(number: int) -> None:
        try:
            stories[number] = play(players[number], schedule, level)
        except Exception as error:
            stories[number] = error

    threads = [threading.Thread(target=side, args=(n,)) for n in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for story in stories:
        if isinstance(story, Exception):
            print(f"{level}, schedule {schedule.number}:\n{schedule.text()}", flush=True)
            raise story
    return stories[0], stories[1]  # type: ignore[return-value]


def first_difference(one: Story, two: Story) -> int | None:
    """Index of the first statement whose outcomes differ."""
    for index, (a, b) in enumerate(zip(one, two, strict=False)):
        if a != b:
            return index
    return None


def _obstacles(waits: list[Wait]) -> dict[int, set[tuple[str, str, int | None]]]:
    """By session, for what and for whom it waits."""
    found: dict[int, set[tuple[str, str, int | None]]] = {}
    for wait in waits:
        found.setdefault(wait.session, set()).add((wait.index, wait.record, wait.holder))
    return found


def is_race(index: int, evidence: list[Evidence]) -> bool:
    """Two sessions or more that waited went on at once with this statement, and who was faster decides what became of them."""
    if not 0 < index < len(evidence):
        return False
    before = _obstacles(evidence[index - 1].waits)
    after = _obstacles(evidence[index].waits)
    died = {(wait.session, wait.record) for wait in evidence[index].cycle}
    went_on = [
        session
        for session, obstacles in before.items()
        if not obstacles & after.get(session, set())
        and not any((session, record) in died for _, record, _ in obstacles)
    ]
    return len(went_on) > 1


def differs_again(players: tuple[Player, Player], schedule: Schedule, level: str, index: int) -> bool:
    """Whether it does at the same statement when looked at for most of a second: one that was granted its lock counts as waiting
    until it gets the processor, which others may have for longer than the patient looks take."""
    return any(first_difference(*both(players, schedule, level, CERTAIN_LOOKS)) == index for _ in range(3))


def describe(schedule: Schedule, stories: tuple[Story, Story], index: int, evidence: list[Evidence]) -> str:
    """For people."""
    lines = [f"CREATE TABLE t ({schedule.kind.ddl})"]
    for number, act in enumerate(schedule.acts[: index + 1]):
        told = ["; ".join(f"{s}: {o.word} {o.detail}" for s, o in story[number]) for story in stories]
        same = told[0] if told[0] == told[1] else f"{told[0]}   |   {told[1]}"
        lines.append(f"  {act.session}: {act.sql}   -- {same}")
    if index >= len(schedule.acts):
        lines += [f"  rows at the end: {story[-1][0][1].detail}" for story in stories]
    if index < len(evidence):
        told = evidence[index].cycle or evidence[index].waits
        lines += [f"  InnoDB: {w.session} waits for {w.index} {w.key} ({w.record}) of {w.holder}" for w in told]
    return "\n".join(lines)


def run_level(players: tuple[Player, Player], level: str, arguments: argparse.Namespace, totals: Totals) -> None:
    """All schedules of one level."""
    for number in range(arguments.first, arguments.first + arguments.count):
        schedule = Drawer(arguments.seed, level, number).schedule()
        stories = both(players, schedule, level, STEADY_LOOKS)
        totals.schedules += 1
        index = first_difference(*stories)
        if index is None:
            continue
        # A statement may have been on its way when it was looked at: once more, looking longer.
        stories = both(players, schedule, level, PATIENT_LOOKS)
        index = first_difference(*stories)
        if index is None:
            totals.hasty += 1
            continue
        evidence = players[0].evidence
        if is_race(index, evidence):
            totals.races += 1
            continue
        seen = [player.evidence[index] if index < len(player.evidence) else Evidence() for player in players]
        before = players[1].evidence[index - 1] if 0 < index <= len(players[1].evidence) else Evidence()
        kind = known_kind(level, schedule, stories, index, (seen[0], seen[1]), before)
        if kind:
            totals.known[kind] += 1
            continue
        shown = describe(schedule, stories, index, evidence)
        if not differs_again(players, schedule, level, index):
            totals.hasty += 1
            continue
        totals.differences[level] += 1
        if totals.shown < arguments.show:
            totals.shown += 1
            print(
                f"\n=== {level}, seed {arguments.seed}, schedule {number}\n{shown}",
                flush=True,
            )


def main() -> int:
    """Run; 0 when the engines agree."""
    arguments = _arguments()
    stop_on_signals()
    begun = time.monotonic()
    names = arguments.engines.split(",")
    players = (_player(names[0]), _player(names[1]))
    totals = Totals()
    try:
        for level in arguments.level or LEVELS:
            run_level(players, level, arguments, totals)
    finally:
        for player in players:
            player.close()
    print(
        f"\n{totals.schedules} schedules, seed {arguments.seed}, {time.monotonic() - begun:.0f} s, engines {arguments.engines}"
    )
    print(f"  differed, but not when looked at longer: {totals.hasty}")
    print(f"  races of two statements that went on at once: {totals.races}")
    for kind, count in totals.known.items():
        print(f"  named difference {kind}: {count}")
    for level in arguments.level or LEVELS:
        print(f"  {level}: {totals.differences[level]} differences in {arguments.count}")
    return int(sum(totals.differences.values()) > 0)


if __name__ == "__main__":
    sys.exit(main())
