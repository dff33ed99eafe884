"""Pages: every experiment draws one, it needs nothing from outside, and Chromium opens it without a script error."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import unittest
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

from ferrite_bench.report.page import write_page
from ferrite_bench.workloads import experiment, experiments
from tests.synthetic import write_run

VOID = {"meta", "br", "hr", "img", "link", "input"}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Balance(HTMLParser):
    """Complains about tags that do not close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, _attrs: object) -> None:
        """Remember it."""
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, _tag: str, _attrs: object) -> None:
        """Closed by itself."""

    def handle_endtag(self, tag: str) -> None:
        """Must close the last one."""
        last = self.open.pop() if self.open else "nothing"
        assert last == tag, f"</{tag}> closes <{last}>"


class Pages(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.home = Path(holder.name)

    def test_every_experiment_draws_a_page(self) -> None:
        for item in experiments().values():
            out = self.home / item.name
            write_run(item, out)
            text = write_page(out).read_text()
            parser = Balance()
            parser.feed(text)
            self.assertEqual(parser.open, [], item.name)
            self.assertEqual(re.findall(r"(?:src|href)=|url\(|@import|https?://(?!www\.w3\.org)", text), [], item.name)
            self.assertEqual(text.count("<svg viewBox"), len(item.charts))
            self.assertFalse("Nothing was measured" in text, item.name)
            self.assertFalse("NaN" in text, item.name)
            for picture in (out / "pictures").glob("*.svg"):
                ElementTree.parse(picture)

    def test_an_incomplete_run_says_so_first(self) -> None:
        write_run(experiment("queue"), self.home, problem="the server ended by itself <signal 9>")
        text = write_page(self.home).read_text()
        self.assertIn("This run is incomplete", text)
        self.assertIn("&lt;signal 9&gt;", text)
        self.assertLess(text.index("This run is incomplete"), text.index("<figure>"))

    def test_who_has_no_data_is_named(self) -> None:
        write_run(experiment("queue"), self.home)
        self.assertIn("No history list length from: MyRocks.", write_page(self.home).read_text())

    def test_a_run_without_any_figure_still_has_a_page(self) -> None:
        write_run(experiment("point-read"), self.home, rounds=0, problem="no engine is left to measure")
        self.assertIn("Nothing was measured", write_page(self.home).read_text())

    @unittest.skipUnless(CHROMIUM, "no Chromium here (Debian package chromium): the page is not opened")
    def test_chromium_opens_it(self) -> None:
        for name in ("queue", "commit-latency", "binlog"):
            out = self.home / name
            write_run(experiment(name), out)
            page = write_page(out)
            done = subprocess.run(
                [
                    str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
                    f"--user-data-dir={self.home / 'profile'}", "--dump-dom", page.as_uri(),
                ],
                capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
            self.assertTrue('data-ready="yes"' in done.stdout, name)
            self.assertNotRegex(done.stderr, r"CONSOLE.*(Uncaught|Error)", name)


if __name__ == "__main__":
    unittest.main()
