"""Moves that are stopped in their midst, by locks of others, by KILL, or on a server that does not do as asked: what the journal says is so."""

from __future__ import annotations

import signal

from migrate.env import DATABASE, Env, expect, same

GROUP = ["parent", "child", "grandchild"]


def scenario_guards_that_cannot_go(env: Env) -> None:
    "A complete group whose guards cannot be taken away, since others hold locks, stays unfinished until they can."
    env.databases()
    env.make(GROUP)
    rows = env.contents()
    for first, then in (("convert", ["convert", "--resume"]), ("back", ["back"])):
        env.tool(first, KILL="move.verified", wanted=-signal.SIGKILL)
        with env.session(database=DATABASE) as holder, holder.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT * FROM parent")
            seen = env.tool(*then, "--lock-wait=1", "--lock-tries=1", wanted=2).text
            expect("other sessions hold locks" in seen, "the message names the cause", seen)
            seen = env.tool("status", wanted=1).text
            expect("verified" in seen and "failed" not in seen and "guards" in seen, "it is not as before", seen)
        expect(env.error("UPDATE child SET p=2") == 1644, "the guards are there")
        env.tool(*then, wanted=0)
        env.nothing_left()
        same(rows, env.contents(), "the rows are as before")
