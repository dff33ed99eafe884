"""The command line: which experiment, which engines, how large, where to."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from ferrite_bench import children
from ferrite_bench.compare import table
from ferrite_bench.engines import DEFAULT_ENGINES, ENGINES, engine
from ferrite_bench.errors import BenchError, Usage
from ferrite_bench.places import Places, find_places
from ferrite_bench.report.markdown import section, summary
from ferrite_bench.report.page import write_page
from ferrite_bench.run import Request, Runner
from ferrite_bench.store import read
from ferrite_bench.terms import SIZES
from ferrite_bench.workloads import experiment, experiments
from ferrite_bench.workloads.base import Experiment

HELP = """\
Experiments on Ferrite and its peers: private servers, interleaved runs, a page with charts.

  ./ferrite bench NAME [--engines ferrite,innodb,rocksdb] [--smoke | --quick | --full] [--rounds N]
                       [--out DIR] [--work DIR] [--no-ceiling]
        run one experiment, or `all` of them; the default size is --quick
  ./ferrite bench list             list the experiments
  ./ferrite bench compare A B      compare two runs (directories or records.jsonl); --all shows all figures
  ./ferrite bench report DIR       create the page again from the records
  ./ferrite bench table DIR [FIGURE ...]   the run as Markdown, and where Ferrite is behind
  ./ferrite bench summary DIR ...          one line of Markdown for each run
  ./ferrite bench selftest         the benchmarks' own tests

Exit codes: 0 complete, 1 incomplete (what was measured is kept), 2 wrong arguments, 130 interrupted."""


def main(arguments: list[str] | None = None) -> int:
    """Entry; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    _stop_on_signals()
    try:
        return _main(words)
    except Usage as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted", file=sys.stderr)
        return 130
    finally:
        children.kill_all()


def _stop_on_signals() -> None:
    """SIGTERM and SIGHUP end a run as Ctrl-C does."""

    def leave(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)


def _main(words: list[str]) -> int:
    word = words[0] if words else "help"
    if word in ("help", "-h", "--help") or {"-h", "--help"} & set(words):
        print(HELP)
        return 0
    if word == "list":
        for item in experiments().values():
            print(f"  {item.name:20} {item.title}{' (not part of all)' if item.apart else ''}")
        return 0
    if word == "compare":
        return _compare(words[1:])
    if word == "report":
        return _report(words[1:])
    if word == "table":
        return _table(words[1:])
    if word == "summary":
        return _summary(words[1:])
    return _run(words)


def _compare(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./ferrite bench compare")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--all", action="store_true", help="every figure, not only the main ones")
    asked = parser.parse_args(words)
    for path in (asked.before, asked.after):
        if not path.exists():
            raise Usage(f"there is no run at {path}")
    print(table((asked.before, asked.after), asked.all))
    return 0


def _report(words: list[str]) -> int:
    if len(words) != 1 or not Path(words[0]).is_dir():
        raise Usage("report needs the directory of a run")
    print(write_page(Path(words[0])))
    return 0


def _table(words: list[str]) -> int:
    if not words or not Path(words[0]).is_dir():
        raise Usage("table needs the directory of a run")
    run = read(Path(words[0]))
    print(section(run, experiment(run.header["experiment"]), tuple(words[1:])), end="")
    return 0


def _summary(words: list[str]) -> int:
    runs = [read(Path(word)) for word in words if Path(word).is_dir()]
    if not words or len(runs) < len(words):
        raise Usage("summary needs directories of runs")
    print(summary([(run, experiment(run.header["experiment"])) for run in runs]), end="")
    return 0


def _run(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./ferrite bench", usage=HELP)
    parser.add_argument("name")
    parser.add_argument("--engines", default=",".join(DEFAULT_ENGINES))
    group = parser.add_mutually_exclusive_group()
    for size in SIZES:
        group.add_argument(f"--{size}", dest="size", action="store_const", const=size)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--keep", action="store_true", help="keep the data directories")
    parser.add_argument("--no-ceiling", action="store_true")
    asked = parser.parse_args(words)
    if asked.rounds is not None and asked.rounds < 1:
        raise Usage("--rounds must be at least 1")
    names = (
        [x.name for x in experiments().values() if not x.apart]
        if asked.name == "all"
        else [experiment(asked.name).name]
    )
    for word in asked.engines.split(","):
        engine(word)  # complains before anything is started
    places = find_places()
    stamp = time.strftime("%Y%m%d-%H%M%S")
    good = True
    for name in names:
        out = asked.out or places.root / "var" / "bench" / (
            f"all-{stamp}" if asked.name == "all" else f"{name}-{stamp}"
        )
        if asked.name == "all":
            out = out / name
        good = _one(places, asked, experiment(name), out) and good
    return 0 if good else 1


def _one(places: Places, asked: argparse.Namespace, item: Experiment, out: Path) -> bool:
    size = SIZES[asked.size or "quick"]
    words = [w for w in dict.fromkeys(x.strip().lower() for x in asked.engines.split(",")) if w != "ceiling"]
    if item.ceiling and not asked.no_ceiling:
        words.append("ceiling")
    work = _work_directory(asked.work or places.root / "var" / "bench")
    rerun = f"./ferrite bench {item.name} --{size.name} --engines {asked.engines}"
    if asked.rounds:
        rerun += f" --rounds {asked.rounds}"
    request = Request(item, [ENGINES[w] for w in words], size, out, work, asked.rounds, asked.keep, rerun)
    runner = Runner(request, places)
    runner.progress.say(f"{item.name} ({size.name}): {item.title}")
    complete = False
    try:
        complete = runner.run()
    finally:
        page = write_page(out)
        runner.progress.say(f"{item.name}: {'complete' if complete else 'INCOMPLETE'}, {page}")
    return complete


def _work_directory(parent: Path) -> Path:
    """A directory of this run; those that dead runs left behind are removed."""
    parent.mkdir(parents=True, exist_ok=True)
    for old in parent.glob("work-*"):
        number = old.name.removeprefix("work-")
        if number.isdigit() and not Path(f"/proc/{number}").exists():
            shutil.rmtree(old, ignore_errors=True)
    work = parent / f"work-{os.getpid()}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    return work
