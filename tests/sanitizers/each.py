"""Each test of the programs that Cargo names on standard input, in a process of its own with a time limit.

A report ends only the test that has it, and a test that does not end names itself. Results come as they are had;
the slowest tests and all findings stand at the end.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

SLOWEST = 10
LAST_LINES = 120


@dataclass(frozen=True)
class Test:
    """A test of a program, which runs in the folder of its crate."""

    program: Path
    folder: Path
    target: str
    name: str

    @property
    def place(self) -> str:
        """Crate and target: `redo/lib`, `redo/crash`."""
        return f"{self.folder.name.removeprefix('ferrite-')}/{self.target}"

    def __str__(self) -> str:
        return f"{self.place} {self.name}"


@dataclass(frozen=True)
class Result:
    """How it went; `said` is empty when nothing was found."""

    test: Test
    seconds: float
    said: str


def tests_of(message: str) -> list[Test]:
    """The tests of a program that Cargo has built; none for its other messages."""
    built = json.loads(message)
    if built.get("reason") != "compiler-artifact" or not built.get("executable"):
        return []
    program = Path(built["executable"])
    listed = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout
    names = [line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")]
    target = built["target"]
    kind = "lib" if "lib" in target["kind"] else target["name"]
    return [Test(program, Path(built["manifest_path"]).parent, kind, name) for name in names]


@dataclass(frozen=True)
class Skipped:
    """Tests that are left out: a line `kind[,kind] crate/target pattern reason` of skipped.txt."""

    place: str
    pattern: str

    def holds(self, test: Test) -> bool:
        """Is it one of them?"""
        return test.place == self.place and fnmatchcase(test.name, self.pattern)


def skipped(path: Path, kind: str) -> list[Skipped]:
    """What says nothing under this sanitizer."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    split = [line.split(maxsplit=3) for line in lines]
    return [Skipped(place, pattern) for kinds, place, pattern, _reason in split if kind in kinds.split(",")]


def run(test: Test, limit: float) -> Result:
    """Runs one test."""
    begun = time.monotonic()
    command = [str(test.program), "--exact", test.name, "--nocapture"]
    try:
        done = subprocess.run(
            command, cwd=test.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit, check=False
        )
        said = "" if done.returncode == 0 else done.stdout.decode(errors="replace") + f"\nexit code {done.returncode}"
    except subprocess.TimeoutExpired as e:
        said = (e.stdout or b"").decode(errors="replace") + f"\ndid not end within {limit:.0f} s"
    return Result(test, time.monotonic() - begun, said)


def main() -> int:
    """Runs all of them; 1 if there was a finding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", required=True)
    parser.add_argument("--test", default="", metavar="PART")
    parser.add_argument("--limit", type=float, default=300, metavar="SECONDS")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    left_out = skipped(Path(__file__).with_name("skipped.txt"), options.kind)
    every = [test for message in sys.stdin for test in tests_of(message)]
    chosen = [test for test in every if options.test in test.name and not any(s.holds(test) for s in left_out)]
    if not chosen:
        print("no such test")
        return 1
    results = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for future in as_completed([pool.submit(run, test, options.limit) for test in chosen]):
            result = future.result()
            results.append(result)
            print(f"{result.seconds:7.1f} s  {'FOUND' if result.said else 'ok   '}  {result.test}", flush=True)
    for result in (result for result in results if result.said):
        print(f"\n---- {result.test}\n" + "\n".join(result.said.splitlines()[-LAST_LINES:]))
    slowest = sorted(results, key=lambda result: -result.seconds)[:SLOWEST]
    print(f"\nslowest: {', '.join(f'{result.test.name} {result.seconds:.0f} s' for result in slowest)}")
    found = sum(bool(result.said) for result in results)
    print(f"{options.kind}: {len(results)} tests, {len(every) - len(results)} left out, {found} with findings")
    places = {test.place for test in every}
    stale = [s for s in left_out if s.place in places and not any(s.holds(test) for test in every)]
    for entry in stale:
        print(f"skipped.txt names {entry.place} {entry.pattern}, which is not there")
    return int(found > 0 or bool(stale))


if __name__ == "__main__":
    sys.exit(main())
