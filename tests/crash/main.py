"""Crash test: writing clients, kill -9 at a random moment, restart, check; many rounds on one data directory."""

from __future__ import annotations

import argparse
import multiprocessing as mp
import shutil
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from random import Random

from crash import ddl
from crash.checks import Checker
from crash.workload import Client, create_tables, run_clients
from lib.engines import Engine, engine
from lib.places import find_places
from lib.server import Server, ServerFailed, stop_on_signals


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./ferrite test crash", description=__doc__)
    parser.add_argument("--engine", default="ferrite")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--processes", type=int, default=2, help="client processes; each runs its clients as threads")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=float, default=3.0, help="longest time before the kill, in seconds")
    parser.add_argument(
        "--fresh-every", type=int, default=20, help="start with an empty directory after so many rounds"
    )
    parser.add_argument(
        "--binlog", choices=("never", "some", "always"), default="some", help="some: on every second directory"
    )
    parser.add_argument(
        "--pool", default="", help="size of the buffer pool in every round, such as 16M; default: varies"
    )
    parser.add_argument(
        "--in-recovery",
        type=float,
        default=0.15,
        help="share of the rounds in which the server is killed in recovery too",
    )
    parser.add_argument("--ci", action="store_true", help="20 rounds")
    parser.add_argument("--keep", default="", help="where to keep the data directory of a failed round")
    parser.add_argument(
        "--option", action="append", default=[], help="one more mariadbd option, as --option=--name=value"
    )
    arguments = parser.parse_args()
    if arguments.ci:
        arguments.rounds, arguments.fresh_every = 20, 7
    return arguments


def random_options(kind: Engine, rng: Random, arguments: argparse.Namespace, binlog: bool) -> list[str]:
    """Server options that change from start to start; a commit survives the process in each, the binlog stays on or off."""
    options = [
        kind.flush(rng.choice((1, 1, 2))),
        kind.pool(rng.choice((arguments.pool,) if arguments.pool else ("16M", "24M", "64M"))),
        kind.lock_wait(5),
        "--max-allowed-packet=64M",
    ]
    if binlog:
        options += ["--log-bin=binlog", f"--sync-binlog={rng.choice((0, 1))}", "--binlog-format=ROW", "--server-id=1"]
    else:
        options.append("--skip-log-bin")
    if kind.prefix == "innodb":
        options += rng.choice(([], ["--innodb-flush-method=fsync"], ["--innodb-io-capacity=4000"]))
    if kind.prefix == "ferrite":
        options.append(f"--loose-ferrite-log-budget={rng.choice(('256M', '256M', '1G'))}")
        options.append(f"--loose-ferrite-history-ring-size={rng.choice(('1M', '32M'))}")
        options.append(f"--loose-ferrite-use-direct-io={rng.choice((0, 1, 1))}")
    return [*options, *arguments.option]


def _client_process(pipe: Pipe, server: Server, clients: list[Client]) -> None:
    """Runs its clients until the pipe says stop, then hands back what they know."""
    stop, begun = threading.Event(), threading.Event()
    worker = threading.Thread(target=run_clients, args=(server, clients, stop, begun))
    worker.start()
    definer = threading.Thread(target=ddl.run, args=(server, clients[0].seed, stop))
    if clients[0].number == 1:
        definer.start()
    begun.wait()
    pipe.send("begun")
    pipe.recv()
    stop.set()
    worker.join()
    if definer.ident:
        definer.join()
    pipe.send(clients)


class Rounds:
    """The loop."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.kind = engine(arguments.engine)
        self.rng = Random(arguments.seed)
        self.server: Server | None = None
        self.clients: list[Client] = []
        self.commits = 0
        self.directories = 0
        self.binlog = False
        self.restarts: list[float] = []

    def run(self) -> int:
        """All rounds; the number of failed ones."""
        failed = 0
        for number in range(1, self.arguments.rounds + 1):
            if self.server is None:
                self._fresh()
            wrong = self._round(number)
            if wrong:
                failed += 1
                self._failed(number, wrong)
            elif number % self.arguments.fresh_every == 0:
                self._remove()
        self._remove()
        return failed

    def _fresh(self) -> None:
        self.directories += 1
        choice = self.arguments.binlog
        self.binlog = choice == "always" or choice == "some" and self.directories % 2 == 0
        self.server = Server(find_places(), self.kind, [])
        self.server.options = random_options(self.kind, self.rng, self.arguments, self.binlog)
        self.server.start()
        create_tables(self.server)
        ddl.create_database(self.server)
        self.clients = [Client(n, 0) for n in range(1, self.arguments.clients + 1)]

    def _remove(self) -> None:
        if self.server:
            self.server.remove()
        self.server = None

    def _failed(self, number: int, wrong: list[str]) -> None:
        assert self.server
        print(f"round {number} FAILED (seed {self.arguments.seed}):")
        for text in wrong:
            print(f"    {text}")
        print(f"  options: {' '.join(self.server.options)}")
        print("  end of the error log:\n" + self.server.log_tail(15), flush=True)
        if self.arguments.keep:
            target = Path(self.arguments.keep) / f"round-{number}"
            self.server.kill()
            shutil.copytree(self.server.home, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("s", "plugin"))
            print(f"  the directory is kept in {target}")
        self._remove()

    def _round(self, number: int) -> list[str]:
        """Clients, kill, restart, checks."""
        assert self.server
        server = self.server
        try:
            died = self._write_and_kill()
            if died:
                return [f"the server ended by itself: {died}"]
            server.options = random_options(self.kind, self.rng, self.arguments, self.binlog)
            for _ in range(3):
                if self.rng.random() >= self.arguments.in_recovery:
                    break
                self._kill_in_recovery()
            took = server.start()
        except ServerFailed as error:
            return [str(error)]
        self.restarts.append(took)
        commits = sum(len(c.acknowledged) for c in self.clients)
        wrong = Checker(server, self.clients).run()
        wrong += ddl.check(server)
        strange = {e for c in self.clients for e in c.errors if not e.isdigit()}
        wrong += [f"client error: {e}" for e in sorted(strange)]
        if not wrong:
            print(
                f"round {number}/{self.arguments.rounds}: {commits} commits so far, restart {took:.2f} s, all there",
                flush=True,
            )
        self.commits += commits
        return wrong

    def _write_and_kill(self) -> str:
        """Let the clients write for a while, then kill; a text if the server was dead before."""
        assert self.server
        count = max(1, min(self.arguments.processes, len(self.clients)))
        for client in self.clients:
            client.seed = self.rng.getrandbits(60)
        groups = [self.clients[n::count] for n in range(count)]
        context = mp.get_context("fork")
        process_handle, self.server.child = self.server.child, None  # children do not own the server
        workers: list[tuple[mp.process.BaseProcess, Pipe]] = []
        for group in groups:
            ours, theirs = context.Pipe()
            worker = context.Process(target=_client_process, args=(theirs, self.server, group))
            worker.start()
            workers.append((worker, ours))
        self.server.child = process_handle
        for _, pipe in workers:
            pipe.recv()
        deadline = time.monotonic() + self.rng.uniform(0.1, self.arguments.longest)
        pause = time.monotonic() + self.rng.uniform(0.1, 3 * self.arguments.longest)
        while time.monotonic() < deadline and self.server.alive():
            time.sleep(0.01)
            if time.monotonic() > pause:
                self._stand_still()
                pause = deadline + 1
        died = (
            ""
            if self.server.alive()
            else f"status {self.server.child.returncode if self.server.child else '?'}\n{self.server.log_tail(40)}"
        )
        self.server.kill()
        self._gather(workers)
        return died

    def _stand_still(self) -> None:
        """The process stops for a moment, as on a machine that is out of breath; clients wait."""
        assert self.server and self.server.child
        self.server.child.send_signal(signal.SIGSTOP)
        time.sleep(self.rng.uniform(0.05, 0.5))
        self.server.child.send_signal(signal.SIGCONT)

    def _gather(self, workers: list[tuple[mp.process.BaseProcess, Pipe]]) -> None:
        """What the clients know comes back."""
        clients: list[Client] = []
        for _, pipe in workers:
            pipe.send("stop")
        for worker, pipe in workers:
            clients += pipe.recv()
            worker.join()
        self.clients = sorted(clients, key=lambda c: c.number)

    def _kill_in_recovery(self) -> None:
        """A second crash while the first is being repaired."""
        assert self.server
        starter = threading.Thread(target=self._start_quietly)
        starter.start()
        while not self.server.alive() and starter.is_alive():
            time.sleep(0.002)
        time.sleep(self.rng.uniform(0.02, 0.6))
        self.server.kill()
        starter.join()

    def _start_quietly(self) -> None:
        assert self.server
        try:
            self.server.start(timeout=20)
        except ServerFailed:
            return


def main() -> int:
    """Run; 0 when every round held."""
    arguments = _arguments()
    stop_on_signals()
    begun = time.monotonic()
    rounds = Rounds(arguments)
    try:
        failed = rounds.run()
    finally:
        if rounds.server:
            rounds.server.remove()
    slowest = max(rounds.restarts, default=0.0)
    print(
        f"{arguments.rounds} rounds with {arguments.engine}, {arguments.clients} clients, seed {arguments.seed}:"
        f" {failed} failed, slowest restart {slowest:.2f} s, {time.monotonic() - begun:.0f} s in all"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
