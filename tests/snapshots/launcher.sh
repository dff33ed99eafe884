#!/usr/bin/env bash
# ./ferrite snapshot, open and rewind: taken, listed, opened beside, rewound to, dropped, and what is refused.
set -euo pipefail

ROOT=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd)
WORK=$(mktemp -d /var/tmp/ferrite-snapshots.XXXXXXXX)
chmod 711 "$WORK"
DATA=$WORK/data
PORT=$((20000 + RANDOM % 10000))
PASSED=0 FAILED=0

cleanup() {
    "$ROOT/ferrite" down --dir "$DATA-open-one" >/dev/null 2>&1 || true
    "$ROOT/ferrite" down --dir "$DATA" >/dev/null 2>&1 || true
    rm -rf "$WORK"
}
trap cleanup EXIT

# shellcheck source=tests/lib/expect.sh
. "$ROOT/tests/lib/expect.sh"

sql() { "$ROOT/ferrite" sql --dir "$DATA" --batch --skip-column-names -e "$1"; }
snapshot() { "$ROOT/ferrite" snapshot --dir "$DATA" "$@"; }
opened() { "$ROOT/ferrite" open --dir "$DATA" "$@"; }
rewind() { "$ROOT/ferrite" rewind --dir "$DATA" "$@"; }

expect "up" 0 'Ferrite is up' "$ROOT/ferrite" up --dir "$DATA" --socket "$WORK/sock" --port "$PORT" -- --log-bin=bin --server-id=1
sql "CREATE DATABASE d; CREATE TABLE d.t (n INT PRIMARY KEY) ENGINE=FERRITE; INSERT INTO d.t VALUES (1), (2)"
expect "a snapshot" 0 'Snapshot one is kept' snapshot one
expect "once" 1 'there is such a snapshot' snapshot one
expect "no name" 1 'is not a name' snapshot 'a/b'
expect "--list" 0 'one .*READY' snapshot --list
sql "INSERT INTO d.t VALUES (3); CREATE TABLE d.u (n INT) ENGINE=FERRITE; CREATE TABLE d.i (FERRITE INT) ENGINE=InnoDB;
    CREATE TABLE d.p (n INT) ENGINE=InnoDB PARTITION BY HASH (n); CREATE TABLE d.q (n INT) PARTITION BY HASH (n);
    SET GLOBAL innodb_file_per_table = 0; CREATE TABLE d.s (n INT) ENGINE=InnoDB COMMENT 'FERRITE'; CREATE TABLE d.m (n INT) ENGINE=MEMORY"
expect "open without a port" 1 'needs a port of its own' opened one
expect "open what is not there" 1 'there is no snapshot two' opened two --port $((PORT + 1))
expect "open elsewhere" 1 'is not empty' opened one --port $((PORT + 1)) --at "$DATA"
expect "open on a port in use" 1 'snapshot one was not opened' opened one --port "$PORT"
expect "open" 0 'Snapshot one is open' opened one --port $((PORT + 1))
second() { "$ROOT/ferrite" sql --dir "$DATA-open-one" --batch --skip-column-names -e "$1"; }
expect "the rows of then" 0 '^1,2$' second "SELECT GROUP_CONCAT(n ORDER BY n) FROM d.t"
expect "read-only" 1 'can only be read' second "INSERT INTO d.t VALUES (9)"
expect "open again" 1 'a server runs on' opened one --port $((PORT + 1))
expect "drop what is open" 1 'is open in another server' snapshot --drop one
expect "down" 0 'Ferrite is down' "$ROOT/ferrite" down --dir "$DATA-open-one"
expect "up on what was opened" 1 'this data directory is not whole' "$ROOT/ferrite" up --dir "$DATA-open-one" --socket "$WORK/two" --port $((PORT + 1)) -- --ferrite=FORCE
expect "open anew" 0 'Snapshot one is open' opened one --port $((PORT + 1))
expect "down again" 0 'Ferrite is down' "$ROOT/ferrite" down --dir "$DATA-open-one"
expect "no such snapshot" 1 'there is no snapshot two' rewind two
expect "InnoDB stays" 1 'WOULD NOT GO BACK: d/i \(InnoDB\), d/p \(InnoDB\), d/s \(InnoDB\)$' rewind one
expect "the binary log" 1 'there is a binary log' rewind one --force
expect "keys that are not there" 1 'cannot read .*no-keys' env FERRITE_ENCRYPTION_KEYS="$WORK/no-keys" \
    "$ROOT/ferrite" rewind --dir "$DATA" one --force --binlog reset
expect "the server was not shut down for it" 0 '^3$' sql "SELECT MAX(n) FROM d.t"
# As from a checkout that the server's account cannot enter, which root's home is.
mkdir -m 700 "$WORK/closed"
ln -s "$(realpath -- "${CARGO_TARGET_DIR:-$ROOT/target}")" "$WORK/closed/target"
# As one that does not end as it should, and one that does not end at all.
for runs in false true; do
    # shellcheck disable=SC2016
    expect "the server is not shut down, and runs on: $runs" 1 "^$runs .*nothing was rewound" env FERRITE_ROOT="$ROOT" RUNS="$runs" bash -c '
        set -euo pipefail
        . "$FERRITE_ROOT/scripts/lib.sh"
        . "$FERRITE_ROOT/scripts/rewind.sh"
        instance_running() { $RUNS; }
        rewind_start() { started=1; }
        ferrite_die() { echo "$([[ -n ${started:-} ]] && echo false || echo true) $1"; exit 1; }
        DIR=/ FERRITE_LAUNCHER=/nowhere
        rewind_stop'
done
expect "rewind" 0 'the database is one now' env CARGO_TARGET_DIR="$WORK/closed/target" \
    "$ROOT/ferrite" rewind --dir "$DATA" one --force --binlog reset -- --log-bin=bin --server-id=1
expect "the rows" 0 '^1,2$' sql "SELECT GROUP_CONCAT(n ORDER BY n) FROM d.t"
expect "the tables" 0 '^i,m,p,s,t$' sql "SELECT GROUP_CONCAT(table_name ORDER BY 1) FROM information_schema.TABLES WHERE table_schema = 'd'"
# The note written anew by hand while the server runs, as ./ferrite proposes it: it says neither port nor socket.
(cd "$DATA" && printf 'state=ready\nserver=%s\naccess=1\n' "$(sed -n 's/^server=//p' ferrite.instance)" >note && cat note >ferrite.instance && rm note)
expect "the port of a server whose note has none" 0 "^port +$PORT\$" "$ROOT/ferrite" status --dir "$DATA"
BEFORE=$(sql "SELECT name FROM information_schema.FERRITE_KEPT_SNAPSHOTS WHERE name LIKE 'before%'")
expect "forth again" 0 'now; what it was before is kept' rewind "$BEFORE" --force --binlog continue -- --log-bin=bin --server-id=1
expect "the rows again" 0 '^1,2,3$' sql "SELECT GROUP_CONCAT(n ORDER BY n) FROM d.t"
# Stopped, all of this has to be found in the files.
sql "CHANGE MASTER 'far' TO MASTER_HOST='127.0.0.1', MASTER_PORT=1"
expect "down before the last" 0 'cleanly' "$ROOT/ferrite" down --dir "$DATA"
# As one whose engine's name is as long.
sed 's/FERRITE/XERRITE/g' "$DATA/d/q.frm" >"$DATA/d/x.frm"
expect "partitions of an engine that has a later number" 1 'WOULD NOT GO BACK: .*d/s \(InnoDB\), d/x \(another engine\)$' rewind one
rm "$DATA/d/x.frm"
# As a server leaves it that was killed amid DDL: a block that says how long blocks are, and one that begins a statement.
printf '\376\376\013\002\0\020' >"$WORK/ddl.log" && truncate -s 4096 "$WORK/ddl.log" && printf '\001' >>"$WORK/ddl.log"
chmod 644 "$WORK/ddl.log"
cp "$WORK/ddl.log" "$DATA/ddl.log"
expect "DDL that the next start ends" 1 'middle of a DDL statement.*data/ddl.log' rewind one --force --binlog continue
rm "$DATA/ddl.log"
expect "DDL in a log elsewhere" 1 'middle of a DDL statement.*snapshots.*/ddl.log' \
    rewind one --force --binlog continue -- --log-bin=bin --log_ddl_recovery="$WORK/ddl.x"
expect "DDL in a log elsewhere, in two words" 1 'middle of a DDL statement.*snapshots.*/ddl.log' \
    rewind one --force --binlog continue -- --log-ddl-recovery "$WORK/ddl"
mv "$DATA/d" "$WORK/d"
ln -s "$WORK/d" "$DATA/d"
expect "InnoDB in a linked database" 1 'WOULD NOT GO BACK: d/i \(InnoDB\)' rewind one
rm "$DATA/d"
mkdir "$WORK/innodb" && mv "$WORK/d" "$DATA/d" && mv "$DATA/d/"[ips].frm "$WORK/innodb"
expect "a stopped replica" 1 'this server is a replica' rewind one --binlog reset
mkdir "$WORK/infos" && mv "$DATA"/*master*.info "$WORK/infos"
mkdir "$WORK/logs" && mv "$DATA"/bin.* "$WORK/logs"
expect "a stopped server's binary log elsewhere" 1 'there is a binary log' rewind one
mv "$WORK/innodb/"* "$DATA/d" && mv "$WORK/infos/"* "$DATA" && mv "$WORK/logs/"* "$DATA"
expect "up at last" 0 'Ferrite is up' "$ROOT/ferrite" up --dir "$DATA" --socket "$WORK/sock" --port "$PORT" -- --log-bin=bin --server-id=1
expect "--drop" 0 'Snapshot one is dropped' snapshot --drop one
expect "once more" 1 'there is no such snapshot' snapshot --drop one

printf 'launcher: %s passed, %s failed\n' "$PASSED" "$FAILED"
((FAILED == 0))
