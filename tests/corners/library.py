"""The shared library itself: how it was built."""

from __future__ import annotations

import subprocess

from corners.env import Env, expect


def _readelf(env: Env, *words: str) -> str:
    library = env.server.places.ferrite_so
    assert library
    return subprocess.run(["readelf", "-W", *words, str(library)], check=True, capture_output=True, text=True).stdout


def scenario_is_protected_like_the_server(env: Env) -> None:
    """Canaries on the stack, checked copies, nothing writable that need not be, no code on the stack."""
    symbols = _readelf(env, "--dyn-syms")
    expect("__stack_chk_fail" in symbols, "no stack protector")
    expect("_chk@" in symbols.replace("__stack_chk", ""), "no checked copies (FORTIFY_SOURCE)")
    headers = _readelf(env, "--program-headers")
    expect("GNU_RELRO" in headers, "no segment that is read-only after relocation")
    stack = [line for line in headers.splitlines() if "GNU_STACK" in line]
    expect(bool(stack) and "RWE" not in stack[0], "the stack may be executed", stack)
    expect(not [line for line in headers.splitlines() if "LOAD" in line and "RWE" in line], "code that can be written")
    expect("NOW" in _readelf(env, "--dynamic"), "symbols are bound late")
