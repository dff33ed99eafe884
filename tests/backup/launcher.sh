#!/usr/bin/env bash
# ./ferrite backup and ./ferrite restore: a full backup, an increment, a point in time, and what is refused.
# --ci: fewer backups are killed.
set -euo pipefail

ROOT=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd)
WORK=$(mktemp -d /var/tmp/ferrite-backup.XXXXXXXX)
chmod 711 "$WORK"
PORT=$((20000 + RANDOM % 10000))
PASSED=0 FAILED=0 KILLS=20
case " $* " in *" --ci "*) KILLS=3 ;; esac

cleanup() {
    local dir
    for dir in "$WORK"/*/; do "$ROOT/ferrite" down --dir "$dir" >/dev/null 2>&1 || true; done
    rm -rf "$WORK"
}
trap cleanup EXIT

# shellcheck source=tests/lib/expect.sh
. "$ROOT/tests/lib/expect.sh"

up() { "$ROOT/ferrite" up --dir "$1" --socket "$1.sock" --port "$PORT" -- --log-bin=bin --server-id=1 --gtid-domain-id=3; }
sql() { "$ROOT/ferrite" sql --dir "$1" --batch --skip-column-names -e "$2"; }
backup() { "$ROOT/ferrite" backup --dir "$WORK/data" "$@"; }
restore() { "$ROOT/ferrite" restore "$@"; }
rows() { sql "$1" "SELECT GROUP_CONCAT(n ORDER BY n) FROM d.t"; }

# restored DIR ROWS: a server on it has these rows, of both engines.
restored() {
    expect "$1 starts" 0 'Ferrite is up' up "$WORK/$1"
    expect "$1 has the rows" 0 "^$2\$" rows "$WORK/$1"
    expect "$1 has InnoDB's" 0 '^7$' sql "$WORK/$1" "SELECT n FROM d.i"
    expect "$1 is shut down" 0 'cleanly' "$ROOT/ferrite" down --dir "$WORK/$1"
}

refusals() {
    mkdir "$WORK/full" "$WORK/cut" "$WORK/cut/ferrite"
    touch "$WORK/full/there"
    expect "no directory" 1 'give the directory' backup
    expect "a full directory" 1 'full is not empty: there is there' backup "$WORK/full"
    expect "inside the data directory" 1 'is inside the data directory' backup "$WORK/data/b"
    expect "a base that was cut off" 1 'backup.info is missing' backup "$WORK/x" --incremental-from "$WORK/cut"
    mkdir "$WORK/base" && cp -r "$WORK/b1/." "$WORK/base" && printf x >"$WORK/base/ferrite/manifest"
    # The server's account reads it.
    chmod -R a+rX "$WORK/base"
    expect "what the server refuses is said" 1 'the backup failed: .*manifest' backup "$WORK/x" --incremental-from "$WORK/base"
    expect "nothing is left of it" 0 '^$' ls -A "$WORK/x"
    rm -rf -- "$WORK/base" "$WORK/x"
    expect "a backup that was cut off" 1 'backup.info is missing' restore "$WORK/cut" --into "$WORK/x"
    expect "over a live directory" 1 'is the data directory of an instance' restore "$WORK/b1" --into "$WORK/data"
    expect "into a full directory" 1 'full is not empty' restore "$WORK/b1" --into "$WORK/full"
    expect "an increment alone" 1 'is an increment of backup' restore "$WORK/b2" --into "$WORK/x"
    expect "--until alone" 1 'needs --binlogs' restore "$WORK/b1" --into "$WORK/x" --until 2030-01-01
    expect "no time" 1 'is no time and no GTID' restore "$WORK/b1" --into "$WORK/x" --until soon --binlogs "$WORK/binlogs"
    mkdir "$WORK/gap"
    cp "$WORK/binlogs/bin.000001" "$WORK/gap/bin.000001"
    cp "$WORK/binlogs/bin.000002" "$WORK/gap/bin.1000000"
    expect "a file of the log is missing" 1 'has bin.1000000, but not the file before it' \
        restore "$WORK/b1" --into "$WORK/x" --until "$GTID" --binlogs "$WORK/gap"
    # As after 999,999 files, the name a digit longer than the one in the backup.
    cp -r "$WORK/b1" "$WORK/late"
    sed -i 's/^binlog_file=.*/binlog_file=bin.999999/' "$WORK/late/backup.info"
    mv "$WORK/gap/bin.000001" "$WORK/gap/bin.999999"
    expect "the name grows a digit" 0 'applying the binary log .*\(2 files\)' \
        restore "$WORK/late" --into "$WORK/grown" --until '2099-01-01 00:00:00' --binlogs "$WORK/gap"
    expect "a moment while the backup ran" 1 'is before the end of the backup' \
        restore "$WORK/b0" --into "$WORK/x" --until "$DURING" --binlogs "$WORK/binlogs"
    expect "no such GTID" 1 '3-1-4711 is not in the binary log' restore "$WORK/b1" --into "$WORK/x" --until 3-1-4711 --binlogs "$WORK/binlogs"
    expect "a GTID before the backup" 1 '3-1-1 is not in the binary log' restore "$WORK/b1" --into "$WORK/x" --until 3-1-1 --binlogs "$WORK/binlogs"
    expect "a GTID cut off" 1 'ends within the transaction' restore "$WORK/b1" --into "$WORK/x" --until "$GTID" --binlogs "$WORK/short"
    [[ ! -e $WORK/x ]] || { FAILED=$((FAILED + 1)) && echo "FAILED: something refused was made"; }
}

damage() {
    cp -a "$WORK/b1" "$WORK/bad"
    # So little was written that it may all be in the log, and no page in the store.
    printf 'x' | dd of="$WORK/bad/ferrite/log" bs=1 seek=100 conv=notrunc status=none
    expect "a damaged log is named" 1 'bad/ferrite: log: checksum differs' restore "$WORK/bad" --into "$WORK/x"
    cp -a "$WORK/b1/ferrite/log" "$WORK/bad/ferrite/log"
    printf 'x' | dd of="$WORK/bad/server/ibdata1" bs=1 seek=5000 conv=notrunc status=none
    expect "a damaged file is named" 1 'ibdata1: FAILED' restore "$WORK/bad" --into "$WORK/x"
}

# A check that says nothing of the database is not taken for one that finds faults in it.
checks_that_end_otherwise() {
    local stub=$WORK/stub wanted how
    for how in 'exit 1:the restored database has faults' 'exit 2:could not be verified' 'kill -9 $$:could not be verified'; do
        wanted=${how##*:}
        printf '#!/bin/sh\n%s\n' "${how%:*}" >"$stub"
        chmod +x "$stub"
        # shellcheck disable=SC2016
        expect "a check that ends with ${how%:*}" 1 "$wanted" env FERRITE_ROOT="$ROOT" STUB="$stub" bash -c '
            set -euo pipefail
            . "$FERRITE_ROOT/scripts/lib.sh"
            . "$FERRITE_ROOT/scripts/restore.sh"
            FERRITE_BACKUP=true FERRITE_CHECK=$STUB RESTORE_FROM=(x) DIR=x
            restore_ferrite'
    done
    rm -f -- "$stub"
}

# A directory that was taken while the backup was verified is left alone.
taken_meanwhile() {
    local dir=$WORK/taken mask
    # shellcheck disable=SC2016
    local make=(env FERRITE_ROOT="$ROOT" INTO="$dir" bash -c '
        set -euo pipefail
        . "$FERRITE_ROOT/scripts/lib.sh"
        . "$FERRITE_ROOT/scripts/restore.sh"
        RESTORE_INTO=$INTO
        restore_dir')
    mkdir -m 755 "$dir"
    exec {TAKEN}<"$dir"
    flock -n "$TAKEN"
    expect "a directory that another one fills" 1 'another ./ferrite is using .*taken' "${make[@]}"
    exec {TAKEN}<&-
    touch "$dir/there"
    expect "a directory that has been filled" 1 'taken is not empty: there is there' "${make[@]}"
    expect "it is as it was" 0 '^755$' stat -c %a "$dir"
    rm "$dir/there"
    expect "an empty one" 0 '^$' "${make[@]}"
    rmdir "$dir"
    ((EUID == 0)) || return 0
    mask=$(umask)
    umask 077
    make[2]=INTO=$dir/below/it
    expect "below directories that root's umask would close" 0 '^$' "${make[@]}"
    umask "$mask"
    expect "they are open for the server's account" 0 '^755 755 700$' bash -c "stat -c %a '$dir' '$dir/below' '$dir/below/it' | paste -sd ' '"
    rm -r "$dir"
}

# A second backup into the same directory builds its programs while the first one begins, and ends: the first one's stays.
second_backup() {
    local to=$WORK/twice bin=$WORK/bin cargo waiting status=0
    cargo=$(command -v cargo || echo "${CARGO_HOME:-$HOME/.cargo}/bin/cargo")
    mkdir "$bin"
    # shellcheck disable=SC2016
    printf '#!/bin/sh\n[ "$1" = --version ] || { touch "%s"; until [ -e "%s" ]; do sleep 0.1; done; }\nexec "%s" "$@"\n' \
        "$bin/builds" "$bin/go" "$cargo" >"$bin/cargo"
    chmod +x "$bin/cargo"
    PATH=$bin:$PATH backup "$to" >"$to.out" 2>&1 &
    waiting=$!
    until [[ -e $bin/builds || ! -e /proc/$waiting ]]; do sleep 0.1; done
    expect "the first of two into one directory" 0 'is complete and verified' backup "$to"
    touch "$bin/go"
    wait "$waiting" || status=$?
    expect "the second ends with an error" 0 '^1$' echo "$status"
    expect "the second says why" 0 'backup: .*twice is not empty' cat "$to.out"
    expect "the first is whole" 0 'Restored' restore "$to" --into "$WORK/twice-restored"
    mkdir "$WORK/stays"
    exec {TAKEN}<"$WORK/stays"
    flock -n "$TAKEN"
    expect "into a directory that another one fills" 1 'another ./ferrite is using .*stays' backup "$WORK/stays"
    exec {TAKEN}<&-
}

# kill_backup HOW TO AFTER: a backup into TO is ended with kill -9 so many ms after it has made its directory: HOW is `all`, everything that
# it has started; `group`, as a terminal does it: mariadb-backup has a group of its own; or `shell`, the script alone. All of it is gone then.
kill_backup() {
    local how=$1 to=$2 pid pids
    # In a session of its own, by which what it has started is known.
    setsid "$ROOT/ferrite" backup --dir "$WORK/data" "$to" >"$to.out" 2>&1 &
    pid=$!
    until [[ -d $to || ! -e /proc/$pid ]]; do sleep 0.02; done
    sleep "$(printf '%d.%03d' $(($3 / 1000)) $(($3 % 1000)))"
    case $how in
        all)
            mapfile -t pids < <(pgrep -s "$pid")
            ((${#pids[@]} == 0)) || kill -9 "${pids[@]}" 2>/dev/null || true
            ;;
        group) kill -9 -- "-$pid" 2>/dev/null || true ;;
        shell) kill -9 "$pid" 2>/dev/null || true ;;
    esac
    wait "$pid" 2>/dev/null || true
    expect "what is left of it ends ($how)" 0 '^$' timeout 60 bash -c "while pgrep -s $pid >/dev/null; do sleep 0.1; done"
}

# backup_state: what the server says of its last backup, and the bytes that it keeps for it.
backup_state() {
    sql "$WORK/data" "SELECT IF(state IN ('WAITING', 'COPYING'), 'RUNS', state), VARIABLE_VALUE FROM information_schema.FERRITE_BACKUP
        JOIN information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'Ferrite_backup_kept_bytes'"
}

# kill -9 of ./ferrite backup at any moment: the server goes on and keeps nothing for it, its directory is no backup and is refused, and the
# next backup is sound, with every row.
killed_backups() {
    local n to how whole cut=0 served="SET lock_wait_timeout = 20; CREATE TABLE d.l (n INT) ENGINE=InnoDB; DROP TABLE d.l; INSERT INTO d.k (n) VALUES"
    # A megabyte, so slowly that copying it takes as long as all the rest.
    sql "$WORK/data" "CREATE TABLE d.k (n INT PRIMARY KEY, pad VARCHAR(250) DEFAULT '') ENGINE=FERRITE;
        INSERT INTO d.k SELECT seq, REPEAT('x', 250) FROM d.seq_1001_to_5000; SET GLOBAL ferrite_backup_max_rate = 500000"
    backup "$WORK/k-whole" >"$WORK/k-whole.out" 2>&1 &
    until [[ -d $WORK/k-whole || ! -e /proc/$! ]]; do sleep 0.02; done
    whole=$(date +%s%3N)
    wait "$!" || true
    whole=$(($(date +%s%3N) - whole))
    expect "a backup that is not killed" 0 'is complete and verified' cat "$WORK/k-whole.out"
    for ((n = 0; n < KILLS; n++)); do
        to=$WORK/k$n
        read -r how < <(printf '%s\n' all group shell | sed -n "$((n % 3 + 1))p")
        # Within what it takes behind its directory, by turns rather than by chance alone: no part of it is left out.
        kill_backup "$how" "$to" $((whole * n / KILLS + RANDOM % (whole / KILLS + 1)))
        expect "the server goes on after kill $n ($how)" 0 '^$' sql "$WORK/data" "$served ($n)"
        for _ in {1..100}; do
            [[ $(backup_state) == RUNS* ]] || break
            sleep 0.1
        done
        expect "nothing of it is left in the server" 0 $'^(FAILED|COMPLETE|NONE)\t0$' backup_state
        if [[ ! -f $to/backup.info ]]; then
            cut=$((cut + 1))
            [[ $(backup_state) != FAILED* ]] || expect "nor in its directory" 0 '^$' find "$to/ferrite" -mindepth 1
            [[ -z $(ls -A "$to") ]] || expect "its directory is refused" 1 "backup: .*k$n is not empty" backup "$to"
            expect "it is no backup" 1 'backup.info is missing' restore "$to" --into "$WORK/x"
        fi
        rm -rf -- "$to" "$WORK/k-next"
        expect "the next backup" 0 'is complete and verified' backup "$WORK/k-next"
    done
    expect "backups were cut off" 0 '^[1-9]' echo "$cut"
    sql "$WORK/data" "DROP TABLE d.k; SET GLOBAL ferrite_backup_max_rate = DEFAULT"
    expect "the last of them is restored" 0 'Restored' restore "$WORK/k-next" --into "$WORK/k-restored"
    expect "it starts" 0 'Ferrite is up' "$ROOT/ferrite" up --dir "$WORK/k-restored" --socket "$WORK/k.sock" --port "$((PORT + 1))"
    expect "it has every row" 0 "^$KILLS\$" sql "$WORK/k-restored" "SELECT COUNT(*) FROM d.k WHERE n < 1000"
    expect "it is shut down" 0 'cleanly' "$ROOT/ferrite" down --dir "$WORK/k-restored"
    rm -rf -- "$WORK"/k-*
    printf 'launcher: %s of %s backups were cut off by kill -9\n' "$cut" "$KILLS"
}

# The disk that a backup goes to is full, at either of its parts: said, and nothing is left on it.
full_disk() {
    local disk=$WORK/disk
    mkdir "$disk"
    mount -t tmpfs -o size=1M,mode=711 tmpfs "$disk" 2>/dev/null || { rmdir "$disk" && echo "no small file system can be mounted here" && return 0; }
    expect "a backup onto a disk that is too small" 1 'the backup failed: mariadb-backup failed' backup "$disk/b"
    expect "why is above" 1 'No space left' backup "$disk/b"
    expect "nothing is left of it" 0 '^$' find "$disk/b" -mindepth 1
    mount -o remount,size=100M "$disk"
    expect "with room" 0 'is complete and verified' backup "$disk/b"
    umount -l "$disk"
    rmdir "$disk"
}

# owners DIR: whose a backup and its parts are. The server's account can put nothing beside its own part.
owners() {
    local account
    expect "the directory is ours" 0 "^$EUID " stat -c '%u %a' "$1"
    ((EUID == 0)) || return 0
    account=$(stat -c %U "$WORK/data")
    expect "the account passes through it" 0 '^710 ' stat -c "%a %g" "$1"
    expect "the server's part is the account's" 0 "^$account 700\$" stat -c '%U %a' "$1/ferrite"
    expect "the rest is root's" 0 '^$' find "$1" -path "$1/ferrite" -prune -o ! -user root -print
    expect "the rest is closed" 0 '^$' find "$1" -mindepth 1 -path "$1/ferrite" -prune -o -perm /077 -print
    expect "that account cannot write there" 1 'Permission denied' \
        setpriv --reuid="$(id -u "$account")" --regid="$(id -g "$account")" --clear-groups touch "$1/x"
}

# contents DIR: all rows of the table that changes between the moments.
contents() { sql "$1" "SELECT * FROM d.p ORDER BY n"; }

# Three moments with work before, between and after them: MOMENTS, and what the table holds at each.
MOMENTS=()
moments() {
    local n
    sql "$WORK/data" "CREATE TABLE d.p (n INT PRIMARY KEY, v DOUBLE, w VARCHAR(40), KEY (v)) ENGINE=FERRITE"
    for n in 0 1 2 3; do
        sql "$WORK/data" "USE test; INSERT INTO d.p SELECT seq + $n * 500, RAND(), UUID() FROM seq_1_to_1000
                ON DUPLICATE KEY UPDATE v = VALUES(v);
            UPDATE d.p SET v = v + 1, w = REVERSE(w) WHERE n % 7 = $n; DELETE FROM d.p WHERE n % 11 = $n"
        ((n < 3)) || break
        sleep 1.1
        MOMENTS+=("$(date '+%Y-%m-%d %H:%M:%S')")
        contents "$WORK/data" >"$WORK/moment.$n"
        sleep 1.1
    done
}

# To each of the moments, from the full backup or the increment; row by row.
back_to_moments() {
    local n
    for n in 0 1 2; do
        expect "restore up to ${MOMENTS[n]}" 0 'Restored' \
            restore "$WORK/b1" "$WORK/b2" --into "$WORK/m$n" --until "${MOMENTS[n]}" --binlogs "$WORK/binlogs"
        expect "m$n starts" 0 'Ferrite is up' up "$WORK/m$n"
        expect "m$n has the rows of ${MOMENTS[n]}" 0 '^$' diff <(contents "$WORK/m$n") "$WORK/moment.$n"
        expect "m$n is whole" 0 'OK' sql "$WORK/m$n" "CHECK TABLE d.p EXTENDED"
        expect "m$n is shut down" 0 'cleanly' "$ROOT/ferrite" down --dir "$WORK/m$n"
    done
}

# Transactions of the hour that comes twice, and one whose clock was ahead with others behind it in the log.
clocks() {
    local zone='CET-1CEST,M3.5.0,M10.5.0/3' last
    expect "up for the clocks" 0 'Ferrite is up' up "$WORK/r1"
    expect "its backup" 0 'is complete and verified' "$ROOT/ferrite" backup --dir "$WORK/r1" "$WORK/c1"
    sql "$WORK/r1" "SET timestamp = $(date -d '2031-10-26 00:15:00 UTC' +%s); INSERT INTO d.t VALUES (11);
        SET timestamp = $(date -d '2031-10-26 01:15:00 UTC' +%s); INSERT INTO d.t VALUES (12);
        SET timestamp = $(date -d '2031-10-26 01:45:00 UTC' +%s); INSERT INTO d.t VALUES (13);
        SET timestamp = $(date -d '2031-10-26 01:20:00 UTC' +%s); INSERT INTO d.t VALUES (14), (15)"
    last=$(sql "$WORK/r1" "SELECT @@gtid_binlog_pos")
    mkdir "$WORK/clocks"
    cp "$WORK/r1"/bin.[0-9]* "$WORK/clocks/"
    expect "r1 is shut down" 0 'cleanly' "$ROOT/ferrite" down --dir "$WORK/r1"
    expect "the first 02:30" 0 '^The last transaction applied .* 3-1-' env TZ="$zone" \
        "$ROOT/ferrite" restore "$WORK/c1" --into "$WORK/k1" --until '2031-10-26 00:30:00 UTC' --binlogs "$WORK/clocks"
    restored k1 1,2,11
    expect "the second 02:30" 0 "1 later transactions .* have times before .*; --until $last applies them, too" env TZ="$zone" \
        "$ROOT/ferrite" restore "$WORK/c1" --into "$WORK/k2" --until '2031-10-26 01:30:00 UTC' --binlogs "$WORK/clocks"
    restored k2 1,2,11,12
    expect "before all of them" 0 'none was applied' \
        restore "$WORK/c1" --into "$WORK/k3" --until '2031-10-26 00:00:00 UTC' --binlogs "$WORK/clocks"
    restored k3 1,2
}

# The server that applies the log has the options that the instance runs with.
with_options() {
    local gtid
    expect "up with options" 0 'Ferrite is up' "$ROOT/ferrite" up --dir "$WORK/r2" --socket "$WORK/r2.sock" --port "$PORT" -- \
        --log-bin=bin --server-id=1 --gtid-domain-id=3 --default-storage-engine=InnoDB
    expect "its backup" 0 'is complete and verified' "$ROOT/ferrite" backup --dir "$WORK/r2" "$WORK/o1"
    sql "$WORK/r2" "CREATE TABLE d.other (n INT PRIMARY KEY); INSERT INTO d.other VALUES (1)"
    gtid=$(sql "$WORK/r2" "SELECT REGEXP_SUBSTR(@@gtid_binlog_pos, '3-1-[0-9]+')")
    expect "r2 is shut down" 0 'cleanly' "$ROOT/ferrite" down --dir "$WORK/r2"
    expect "options without a log" 1 'needs --until' restore "$WORK/o1" --into "$WORK/o2" -- --sql-mode=ANSI
    expect "an option of the launcher's own" 1 'cannot be given after --' \
        restore "$WORK/o1" --into "$WORK/o2" --until "$gtid" --binlogs "$WORK/r2" -- --datadir=/nowhere
    expect "nothing was made" 1 '^$' test -e "$WORK/o2"
    expect "restore with options" 0 'Restored' restore "$WORK/o1" --into "$WORK/o2" --until "$gtid" --binlogs "$WORK/r2" -- \
        --default-storage-engine=InnoDB --log-bin=bin --innodb-buffer-pool-size=32M
    expect "o2 starts" 0 'Ferrite is up' up "$WORK/o2"
    expect "the table's engine" 0 '^InnoDB$' sql "$WORK/o2" "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_NAME = 'other'"
    expect "o2 is shut down" 0 'cleanly' "$ROOT/ferrite" down --dir "$WORK/o2"
}

# From plain to encrypted, and back.
encrypted() {
    local keys=$WORK/keys
    printf '1;%s\n2;%s\n' "$(printf 'a7%.0s' {1..32})" "$(printf '9c%.0s' {1..32})" >"$keys"
    chmod 644 "$keys"
    expect "--encrypt without keys" 1 'needs the server.s keys' env -u FERRITE_ENCRYPTION_KEYS "$ROOT/ferrite" restore "$WORK/b1" --into "$WORK/e1" --encrypt 2
    export FERRITE_ENCRYPTION_KEYS=$keys
    expect "--encrypt without a number" 1 "not 'all'" restore "$WORK/b1" --into "$WORK/e1" --encrypt all
    expect "--encrypt and --decrypt" 1 'give --encrypt or --decrypt' restore "$WORK/b1" --into "$WORK/e1" --encrypt 2 --decrypt
    expect "nothing was made" 1 '^$' test -e "$WORK/e1"
    expect "to encrypted" 0 'Restored' restore "$WORK/b1" "$WORK/b2" --into "$WORK/e1" --encrypt 2
    expect "up encrypted" 0 'Ferrite is up' "$ROOT/ferrite" up --dir "$WORK/e1" --socket "$WORK/e1.sock" --port "$PORT" -- --ferrite-encrypt
    expect "it is encrypted" 0 '^1 1,2,3$' sql "$WORK/e1" "SELECT CONCAT(VARIABLE_VALUE, ' ', (SELECT GROUP_CONCAT(n ORDER BY n) FROM d.t))
        FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'Ferrite_store_encrypted'"
    expect "an encrypted backup" 0 'is complete and verified' "$ROOT/ferrite" backup --dir "$WORK/e1" "$WORK/e2"
    expect "the encrypted one is shut down" 0 'cleanly' "$ROOT/ferrite" down --dir "$WORK/e1"
    expect "to plain" 0 'Restored' restore "$WORK/e2" --into "$WORK/e3" --decrypt
    unset FERRITE_ENCRYPTION_KEYS
    restored e3 1,2,3
}

# A directory whose name is longer than a socket's may be, and a restore that is interrupted while it applies the log.
far_and_cut_off() {
    local far
    far=$WORK/$(printf 'far%.0s' {1..30})
    expect "restore far down" 0 '^The last transaction applied .* 3-1-' \
        restore "$WORK/b1" --into "$far" --until "$GTID" --binlogs "$WORK/binlogs"
    expect "far down it starts" 0 'Ferrite is up' "$ROOT/ferrite" up --dir "$far" --socket "$WORK/far.sock" --port "$PORT"
    expect "far down are the rows" 0 '^1,2,3,4$' rows "$far"
    expect "far down it is shut down" 0 'cleanly' "$ROOT/ferrite" down --dir "$far"
    cut_off INT cutoff
    expect "what was cut off is said" 0 'the restore was cut off' cat "$WORK/cutoff.out"
    expect "no server is left" 1 '^$' pgrep -f -- "--datadir=$WORK/cutoff"
    expect "it is no instance" 1 '^$' test -e "$WORK/cutoff/ferrite.instance"
    # As a power failure leaves it, but for the server.
    cut_off KILL killed
    expect "it is at no moment that was asked for" 1 'a restore was cut off' up "$WORK/killed"
    expect "its server is shut down" 0 'cleanly|No server runs' "$ROOT/ferrite" down --dir "$WORK/killed"
    expect "it is still none" 1 'a restore was cut off' up "$WORK/killed"
    expect "nor for a rewind" 1 'a restore was cut off' "$ROOT/ferrite" rewind any --dir "$WORK/killed"
}

# cut_off SIGNAL NAME: a restore is ended so when its server has started to apply the log. That is over in a moment, which this
# process may have slept through: then once more.
cut_off() {
    local into=$WORK/$2 restoring try
    for try in 1 2 3 4 5; do
        rm -rf -- "$into"
        # In a group of its own, as in a terminal; a background job of a shell would not hear an interrupt.
        python3 -c 'import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.setsid(); os.execv(sys.argv[1], sys.argv[1:])' \
            "$ROOT/ferrite" restore "$WORK/b1" --into "$into" --until "$GTID" --binlogs "$WORK/binlogs" >"$into.out" 2>&1 &
        restoring=$!
        until [[ -e $into/ferrite.pid || ! -e /proc/$restoring ]]; do sleep 0.02; done
        kill "-$1" -- "-$restoring" 2>/dev/null || true
        wait "$restoring" || true
        grep -q '^Restored' "$into.out" || break
        echo "the restore was faster than the signal, $try times"
    done
}

# A backup that a statement on a MyISAM table holds up before its point in time, and a moment in between: DURING.
slow_backup() {
    local backing sleeping="SELECT ID FROM information_schema.PROCESSLIST WHERE STATE = 'User sleep'"
    sql "$WORK/data" "CREATE TABLE d.m (n INT) ENGINE=MyISAM"
    sql "$WORK/data" "INSERT INTO d.m SELECT SLEEP(600)" 2>/dev/null &
    until [[ -n $(sql "$WORK/data" "$sleeping") ]]; do sleep 0.1; done
    backup "$WORK/b0" >"$WORK/b0.out" 2>&1 &
    backing=$!
    until [[ -d $WORK/b0/server || ! -e /proc/$backing ]]; do sleep 0.1; done
    sleep 1.1
    DURING=$(date '+%Y-%m-%d %H:%M:%S')
    sleep 1.1
    sql "$WORK/data" "INSERT INTO d.t VALUES (0)"
    expect "it is not done yet" 0 '^$' find "$WORK/b0" -name backup.info
    expect "it still waits" 0 '^[0-9]+$' sql "$WORK/data" "$sleeping"
    sql "$WORK/data" "KILL QUERY $(sql "$WORK/data" "$sleeping")"
    wait "$backing" || true
    wait
    expect "the slow backup" 0 'is complete' cat "$WORK/b0.out"
    sql "$WORK/data" "DELETE FROM d.t WHERE n = 0; DROP TABLE d.m"
}

expect "up" 0 'Ferrite is up' up "$WORK/data"
sql "$WORK/data" "CREATE DATABASE d; CREATE TABLE d.t (n INT PRIMARY KEY) ENGINE=FERRITE;
    CREATE TABLE d.i (n INT PRIMARY KEY) ENGINE=InnoDB; INSERT INTO d.i VALUES (7); INSERT INTO d.t VALUES (1), (2);
    CREATE DATABASE xtrabackup_d; CREATE DATABASE mariadb_backup_d; CREATE TABLE xtrabackup_d.t (n INT) ENGINE=InnoDB"
checks_that_end_otherwise
taken_meanwhile
slow_backup
second_backup
killed_backups
full_disk
expect "a full backup" 0 'is complete and verified' backup "$WORK/b1"
sql "$WORK/data" "CREATE TABLE d.u (n INT) ENGINE=FERRITE; INSERT INTO d.t VALUES (3)"
owners "$WORK/b1"
expect "an increment" 0 'is complete and verified' backup "$WORK/b2" --incremental-from "$WORK/b1"
# A change of a row whose event, old row and new row as text, is larger than a packet usually may be.
sql "$WORK/data" "SET binlog_format = ROW; CREATE TABLE d.b (n INT PRIMARY KEY, m MEDIUMBLOB) ENGINE=FERRITE; INSERT INTO d.b VALUES (1, REPEAT('a', 7340032));
    UPDATE d.b SET m = REPEAT('b', 7340032)"
# In two domains: all of both belong to the moment of the last.
sql "$WORK/data" "SET gtid_domain_id = 8; CREATE TABLE d.w (n INT) ENGINE=FERRITE; INSERT INTO d.w VALUES (8)"
sql "$WORK/data" "INSERT INTO d.t VALUES (4)"
GTID=$(sql "$WORK/data" "SELECT REGEXP_SUBSTR(@@gtid_binlog_pos, '3-1-[0-9]+')")
mkdir "$WORK/short"
head -c -3 "$WORK/data/bin.000001" >"$WORK/short/bin.000001"
sql "$WORK/data" "SET gtid_domain_id = 8; INSERT INTO d.w VALUES (9)"
sleep 1.1
TIME=$(date '+%Y-%m-%d %H:%M:%S')
sleep 1.1
sql "$WORK/data" "INSERT INTO d.t VALUES (5); FLUSH BINARY LOGS; INSERT INTO d.t VALUES (6)"
moments
mkdir "$WORK/binlogs"
cp "$WORK/data"/bin.[0-9]* "$WORK/binlogs/"
refusals
expect "mariadb-backup alone is refused" 1 'no rows of 5 FERRITE tables' \
    "$ROOT/ferrite" sql --dir "$WORK/data" --force -e "BACKUP STAGE START"
damage
"$ROOT/ferrite" down --dir "$WORK/data" >/dev/null
if ((EUID == 0)); then
    mkdir -m 700 "$WORK/closed"
    expect "where the server cannot come" 1 'account _ferrite cannot enter .*closed' restore "$WORK/b1" --into "$WORK/closed/a/r"
fi
expect "restore" 0 'Restored' restore "$WORK/b1" --into "$WORK/r1"
restored r1 1,2
expect "restore an increment" 0 'Restored' restore "$WORK/b1" "$WORK/b2" --into "$WORK/r2"
restored r2 1,2,3
expect "no file of mariadb-backup is left" 0 '^mariadb_backup_d xtrabackup_d$' bash -c "cd '$WORK/r2' && echo mariadb_backup_* xtrabackup_*"
expect "restore up to a time" 0 'Restored' restore "$WORK/b1" --into "$WORK/r3" --until "$TIME" --binlogs "$WORK/binlogs"
restored r3 1,2,3,4
expect "restore up to a GTID" 0 'Restored' restore "$WORK/b1" "$WORK/b2" --into "$WORK/r4" --until "$GTID" --binlogs "$WORK/binlogs"
expect "r4 starts again" 0 'Ferrite is up' up "$WORK/r4"
expect "r4 has the large row" 0 '^7340032 b$' sql "$WORK/r4" "SELECT CONCAT(LENGTH(m), ' ', RIGHT(m, 1)) FROM d.b"
expect "r4 has the other domain's" 0 '^8$' sql "$WORK/r4" "SELECT n FROM d.w"
expect "r4 is shut down again" 0 'cleanly' "$ROOT/ferrite" down --dir "$WORK/r4"
restored r4 1,2,3,4
back_to_moments
clocks
with_options
encrypted
far_and_cut_off

printf 'launcher: %s passed, %s failed\n' "$PASSED" "$FAILED"
((FAILED == 0))
