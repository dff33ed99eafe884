"""ferrite-top on a server: the page and the lines for logs show what was just caused, and the screen works in a terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import threading
import time

from lib.server import Server
from monitoring.live import Failed


def _expect(condition: object, what: str, seen: object) -> None:
    if not condition:
        raise Failed(f"ferrite-top: {what}: {seen}")


def _command(server: Server, *words: str) -> list[str]:
    connection = ["--no-defaults", f"--socket={server.socket}", "--user=root"]
    return [sys.executable, "-m", "ferrite_top", *connection, "--interval", "0.5", *words]


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def watched(server: Server) -> None:
    """A transaction that holds locks, one that waits for it, and stalls."""
    holder, waiter = (server.connect(database="test", autocommit=False) for _ in range(2))
    with holder.cursor() as cursor:
        cursor.execute("CREATE TABLE w (id INT PRIMARY KEY, n INT) ENGINE=FERRITE")
        cursor.execute("INSERT INTO w VALUES (1, 1), (2, 2)")
        cursor.execute("COMMIT")
        cursor.execute("UPDATE w SET n = 3 WHERE id = 1")
    update = "UPDATE w SET n = 4 WHERE id = 1"

    def wait() -> None:
        with waiter.cursor() as cursor:
            cursor.execute(update)
        waiter.rollback()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        page = _until_page(server, update)
    finally:
        holder.rollback()
        thread.join()
    _expect("waiting 1" in page and f"{holder.thread_id()} " in page, "the locks", page)
    page = _run(_command(server, "--once")).stdout
    _expect(f"connection {waiter.thread_id()}  {update}" in page, "the stall", page)
    _expect("row lock" in page.split("WAITS", 1)[1].split("TRANSACTIONS", 1)[0], "the wait", page)
    lines = _run(_command(server, "--batch", "--count", "2")).stdout.splitlines()
    _expect(len(lines) == 3 and lines[0].split()[0] == "time", "lines for a log", lines)
    _refused(server)
    _screen(server)
    holder.close()
    waiter.close()
    print("ferrite-top shows what was caused", flush=True)


def _until_page(server: Server, update: str) -> str:
    for _ in range(20):
        shown = _run(_command(server, "--once"))
        _expect(shown.returncode == 0, "it ends well", shown.stderr)
        if "LOCK WAIT" in shown.stdout and update in shown.stdout:
            return shown.stdout
    raise Failed(f"ferrite-top: the waiting transaction is not shown:\n{shown.stdout}")


def _refused(server: Server) -> None:
    no_terminal = _run(_command(server))
    _expect(no_terminal.returncode == 1 and "no terminal" in no_terminal.stderr, "no terminal", no_terminal)
    nowhere = _run([sys.executable, "-m", "ferrite_top", "--no-defaults", "--socket=/nonexistent"])
    _expect(nowhere.returncode == 1 and nowhere.stderr.startswith("ferrite-top: "), "no server", nowhere)
    _expect(_run(_command(server, "--once", "--count", "3")).returncode == 2, "options that do not go together", "")


def _screen(server: Server) -> None:
    """In a terminal: it draws, is paused, and ends with q."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ |= {"TERM": "xterm", "LINES": "40", "COLUMNS": "120"}
        os.execv(sys.executable, _command(server))
    seen, until = b"", time.monotonic() + 60
    keys = [(b"TRANSACTIONS", b"p"), (b"PAUSED", b"q")]
    while time.monotonic() < until:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                seen += os.read(terminal, 65536)
            except OSError:
                break
        if keys and keys[0][0] in seen:
            os.write(terminal, keys.pop(0)[1])
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    _expect(not keys and status == 0, "the screen", seen[-2000:])
