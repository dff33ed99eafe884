"""Tests of the lab that need no server; the page test opens Chromium where there is one."""
