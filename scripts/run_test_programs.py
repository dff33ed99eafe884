"""Runs the test programs that cargo has built, one for each processor at a time; a program's own tests one after the
other.

Standard input: what `cargo test --no-run --message-format=json-render-diagnostics` says. cargo itself runs one program
after the other, and while the last test of each goes on the other processors wait. What a program printed is shown when
it has ended. Exit code 1 if one failed.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import subprocess
import sys
import time
from pathlib import Path


def programs(lines: list[str]) -> list[tuple[str, Path]]:
    """Each test program with the folder of its crate, in which cargo would run it. The largest first: they take longest."""
    found = []
    for line in lines:
        message = json.loads(line)
        if (
            message.get("reason") == "compiler-artifact"
            and message["profile"]["test"]
            and message["executable"]
        ):
            found.append((message["executable"], Path(message["manifest_path"]).parent))
    return sorted(found, key=lambda program: -os.path.getsize(program[0]))


# Of one program. None takes a minute.
MOST_SECONDS = 900


def run(program: str, folder: Path) -> bool:
    """Runs one and shows what it printed."""
    environment = os.environ | {
        "RUST_TEST_THREADS": "1",
        "CARGO_MANIFEST_DIR": str(folder),
    }
    begun = time.monotonic()
    try:
        done = subprocess.run(
            [program, "--quiet"],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=MOST_SECONDS,
            check=False,
        )
        output, failure = (
            done.stdout,
            f"exit code {done.returncode}" if done.returncode else "",
        )
    except subprocess.TimeoutExpired as e:
        output, failure = e.stdout or b"", f"killed after {MOST_SECONDS} s"
    title = f"{folder.name}: {Path(program).name.rsplit('-', 1)[0]}, {time.monotonic() - begun:.1f} s"
    said = output.decode(errors="backslashreplace").strip()
    if failure:
        print(f"{title}: FAILED, {failure}\n{said}", flush=True)
    else:
        print(f"{title}: {said.splitlines()[-1] if said else 'no test'}", flush=True)
    return not failure


def main() -> int:
    """Entry point."""
    all_of_them = programs(sys.stdin.readlines())
    if not all_of_them:
        print("no test program was built")
        return 1
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        passed = list(pool.map(lambda program: run(*program), all_of_them))
    print(f"{sum(passed)} of {len(passed)} test programs passed")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
