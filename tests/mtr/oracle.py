"""The oracle of the suite storage_engine: its shipped results are stale, so InnoDB's answers of today are recorded."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from mtr.runner import run_mtr
from mtr.tree import OVERLAY_FOLDER, Tree

SUITES = ("storage_engine", "storage_engine/trx", "storage_engine/parts")
UNUSABLE = {
    # They print connection ids in SHOW PROCESSLIST, and wait for table locks that row-locking engines do not take.
    "delete_low_prio",
    "insert_high_prio",
    "insert_low_prio",
    "select_high_prio",
    "update_low_prio",
    "select_low_prio",
}


def test_names(tree: Tree, suite: str) -> list[str]:
    """All usable tests of one of the suites."""
    directory = tree.mtr / "suite" / suite
    return sorted(p.stem for p in directory.glob("*.test") if p.stem not in UNUSABLE)


def oracle(tree: Tree) -> None:
    """Record once per server version; the tree keeps it."""
    if (tree.home / "oracle-recorded").exists():
        return
    print("mtr: recording storage_engine's results from InnoDB (once per server version, some minutes)", flush=True)
    _forget_shipped(tree)
    _mask_estimates(tree)
    for suite in SUITES:
        names = test_names(tree, suite)
        result = run_mtr(
            tree, suite, ["--record", "--enable-disabled", f"--suite={suite}-innobase", *names], quiet=True
        )
        moved = _move(tree, suite)
        if moved < len(names) * 0.9:
            raise SystemExit(f"recording {suite} from InnoDB failed, {moved} of {len(names)}: see {result.log}")
        print(f"  {suite}: {moved} results recorded from {len(names)} tests, {dict(result.counts())}", flush=True)
    (tree.home / "oracle-recorded").touch()


def _forget_shipped(tree: Tree) -> None:
    """What came with the server no longer applies. Ferrite's own overlay was written against the recorded results and stays."""
    for found in (tree.mtr / "suite" / "storage_engine").rglob("*.result"):
        found.unlink()
    shipped = [d for d in (tree.mtr / "plugin").glob("*/storage_engine") if d.parent.name != OVERLAY_FOLDER]
    for found in (f for directory in shipped for f in directory.rglob("*.rdiff")):
        found.unlink()
    disabled = [f for directory in shipped for f in directory.rglob("disabled.def")]
    for found in [tree.mtr / "suite" / "storage_engine" / "disabled.def", *disabled]:
        if found.exists():
            tree.write(found, re.sub(r"^(?=[a-z])", "# ", found.read_text(), flags=re.MULTILINE))


def _mask_estimates(tree: Tree) -> None:
    """How many rows InnoDB expects depends on when its statistics were computed, in the background: no plan shows them."""
    for found in (tree.mtr / "suite" / "storage_engine").rglob("*.test"):
        text = found.read_text(encoding="utf-8", errors="surrogateescape")
        masked = re.sub(
            r"^(?!--replace_column)(.*\n)(?=EXPLAIN SELECT )", r"\1--replace_column 9 #\n", text, flags=re.MULTILINE
        )
        if masked != text:
            tree.write(found, masked)


def _move(tree: Tree, suite: str) -> int:
    """From the overlay, where mtr records, to the suite itself."""
    source = tree.mtr / "plugin" / "innobase" / suite
    target = tree.mtr / "suite" / suite
    moved = 0
    for found in source.glob("*.result"):
        destination = target / Path(found.name)
        destination.unlink(missing_ok=True)
        shutil.move(found, destination)
        tree.give(destination)
        moved += 1
    return moved
