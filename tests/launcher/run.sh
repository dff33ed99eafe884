#!/usr/bin/env bash
# The launcher itself: bad options and directories are refused with a message that says what to do, nothing foreign is
# touched, and up, status, sql and down do what they say. Then access.sh. Takes about a minute.
set -euo pipefail

ROOT=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd)
WORK=$(mktemp -d /var/tmp/ferrite-launcher.XXXXXXXX)
# The account that root's servers run as passes through it, and cannot list it.
chmod 711 "$WORK"
LISTENER=
PASSED=0 FAILED=0
PORT=$((20000 + RANDOM % 10000))
# A server series that these tests do not run on.
OTHER_SERIES=11.8
[[ ${FERRITE_SERVER:-} != 11.8 ]] || OTHER_SERIES=10.11

cleanup() {
    [[ -z $LISTENER ]] || kill "$LISTENER" 2>/dev/null || true
    "$ROOT/ferrite" down --dir "$WORK/data" >/dev/null 2>&1 || true
    rm -rf "$WORK"
}
trap cleanup EXIT

# shellcheck source=tests/lib/expect.sh
. "$ROOT/tests/lib/expect.sh"

up() { "$ROOT/ferrite" up --dir "$WORK/data" --socket "$WORK/s" --port "$PORT" "$@"; }
sql() { "$ROOT/ferrite" sql --dir "$WORK/data" "$@"; }
up_at() { "$ROOT/ferrite" up --socket "$WORK/s" --port "$PORT" --dir "$@"; }

# Another account of this machine, in a script of its own.
access_test() {
    local status=0
    "$ROOT/tests/launcher/access.sh" || status=$?
    case $status in
        0) PASSED=$((PASSED + 1)) ;;
        77) ;;
        *) FAILED=$((FAILED + 1)) ;;
    esac
}

bad_words() {
    expect "help" 0 '\./ferrite up' "$ROOT/ferrite" help
    expect "no word is help" 0 '\./ferrite up' "$ROOT/ferrite"
    expect "unknown word" 2 "unknown command 'fly'" "$ROOT/ferrite" fly
    expect "unknown option" 1 "unknown argument '--colour'" up --colour
    expect "option without value" 1 '--dir needs a value' "$ROOT/ferrite" up --dir
    expect "option with -- for a value" 1 '--port needs a value' "$ROOT/ferrite" up --port --
    expect "empty option value" 1 '--socket needs a value' "$ROOT/ferrite" up --socket=
    expect "port that is no number" 1 'not a port' up --port ten
    expect "port out of range" 1 'not a port' up --port 70000
    expect "socket path too long" 1 'longer than 107' up --socket "/tmp/$(printf 'x%.0s' {1..120})"
    expect "server option of the launcher's own" 1 'cannot be given after --' up -- --datadir=/nowhere
    expect "unknown server" 1 "no Ferrite for MariaDB '9\.9'.*" up --server 9.9
    expect "unknown servers name those that are known" 1 '10\.11 11\.8' "$ROOT/ferrite" build --server=9.9
    expect "server without value" 1 '--server needs a value' "$ROOT/ferrite" build --server
    expect "unknown tests" 1 "no 'flying' tests" "$ROOT/ferrite" test flying
    expect "down with a stray word" 1 "unknown argument 'now'" "$ROOT/ferrite" down now
}

interrupted() {
    command -v python3 >/dev/null || return 0
    expect "interrupted beside a program that answers it" 130 '^ended$' "$ROOT/tests/launcher/interrupted.sh"
}

bad_directories() {
    mkdir -p "$WORK/foreign" "$WORK/other/mysql"
    touch "$WORK/file" "$WORK/foreign/letter"
    expect "directory that is a file" 1 'is not a directory' up_at "$WORK/file"
    expect "directory below a file" 1 'cannot create' up_at "$WORK/file/data"
    expect "directory with other things" 1 'not empty and not a data directory' up_at "$WORK/foreign"
    expect "directory of another server" 1 'data directory of another server' up_at "$WORK/other"
    expect "nothing was written" 0 '^letter$' ls -A "$WORK/foreign"
    if ((EUID == 0)); then
        expect "unwritable place" 1 'cannot create|not writable' up_at /proc/ferrite
    else
        mkdir "$WORK/locked"
        chmod 555 "$WORK/locked"
        expect "unwritable directory" 1 'not writable' up_at "$WORK/locked"
        expect "unwritable parent" 1 'cannot create' up_at "$WORK/locked/data"
    fi
}

not_running() {
    expect "status when it is not running" 3 'not running' "$ROOT/ferrite" status --dir "$WORK/data"
    expect "down when it is not running" 0 'No server runs' "$ROOT/ferrite" down --dir "$WORK/data"
    expect "sql when it is not running" 1 'start it with: ./ferrite up --dir' "$ROOT/ferrite" sql --dir "$WORK/data"
}

port_in_use() {
    command -v python3 >/dev/null || return 0
    python3 -c 'import socket, sys, time
s = socket.socket(); s.bind(("127.0.0.1", int(sys.argv[1]))); s.listen(); time.sleep(60)' "$PORT" &
    LISTENER=$!
    until (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null; do sleep 0.1; done
    expect "port in use" 1 "port $PORT is in use.*" up
    kill "$LISTENER"
    wait "$LISTENER" 2>/dev/null || true
    LISTENER=
}

a_life() {
    expect "wrong server option" 1 'unknown variable.*no-such-thing' up -- --no-such-thing=1
    expect "up" 0 'Ferrite is up' up
    expect "up again" 0 'already running' up
    expect "up again with another port" 0 'keeps the port' up --port 3
    expect "status" 0 'engine +Ferrite' "$ROOT/ferrite" status --dir "$WORK/data"
    expect "sql" 0 '^FERRITE$' "$ROOT/ferrite" sql --dir "$WORK/data" -NBe 'SELECT UPPER(@@default_storage_engine)'
    expect "tcp" 0 '^42$' sql --protocol=tcp --host=127.0.0.1 --port="$PORT" --user=ferrite \
        --password="$(cat "$WORK/data/ferrite.password")" -NBe 'SELECT 42'
    expect "up prints how to connect over TCP" 0 "port=$PORT --user=ferrite --password=$(cat "$WORK/data/ferrite.password")" up
    expect "no directory of ours is a database" 0 '^information_schema mysql performance_schema sys test $' \
        bash -c "'$ROOT/ferrite' sql --dir '$WORK/data' -NBe 'SHOW DATABASES' | tr '\n' ' '"
    expect "INTO OUTFILE has its place" 0 '^$' sql -e "SELECT 1 INTO OUTFILE '$WORK/data/.files/one'"
    expect "socket in use" 1 'socket .* is in use' up_at "$WORK/second" --port 3
    expect "down" 0 'cleanly' "$ROOT/ferrite" down --dir "$WORK/data"
    expect "down again" 0 'No server runs' "$ROOT/ferrite" down --dir "$WORK/data"
    expect "up with server options" 0 'Ferrite is up' up -- --max-connections=77
    expect "a second start leaves the accounts alone" 0 '^1$' sql -NBe \
        "SELECT COUNT(*) FROM mysql.global_priv WHERE User = 'ferrite'"
    expect "the option arrived" 0 '^77$' "$ROOT/ferrite" sql --dir "$WORK/data" -NBe 'SELECT @@max_connections'
    expect "down at last" 0 'cleanly' "$ROOT/ferrite" down --dir "$WORK/data"
    ends
    expect "directory of another server series" 1 'was made for MariaDB .* is asked for' \
        "$ROOT/ferrite" up --dir "$WORK/data" --server "$OTHER_SERIES"
    expect "status of it says so too" 1 'was made for MariaDB' "$ROOT/ferrite" status --dir "$WORK/data" --server "$OTHER_SERIES"
    printf 'Ferrite built for MariaDB 9.9.9-MariaDB' >"$WORK/alien.so"
    expect "plugin of another version" 1 'was built for MariaDB 9\.9\.9, and this server is' \
        env HA_FERRITE_SO="$WORK/alien.so" "$ROOT/ferrite" up --dir "$WORK/data" --socket "$WORK/s" --port "$PORT"
}

# A note that says nothing (a power loss can leave it empty) is no leave to remove the data that it stands beside.
damaged_note() {
    local note=$WORK/data/ferrite.instance text
    cp -a "$note" "$WORK/note"
    expect "the data is there" 0 '#ferrite' ls -A "$WORK/data"
    files_of "$WORK/data" >"$WORK/before"
    for text in '' 'state=' 'state=creating' 'pid=7' 'state=read'; do
        printf '%s' "$text" >"$note"
        expect "up with the note '$text'" 1 'ferrite.instance is damaged .*nothing was changed' up
        expect "all is there after the note '$text'" 0 '^$' diff "$WORK/before" <(files_of "$WORK/data")
    done
    expect "rewind with such a note" 1 'ferrite.instance is damaged' "$ROOT/ferrite" rewind any --dir "$WORK/data"
    printf 'state=ready\nserver=%s\naccess=1\n' "${FERRITE_SERVER:-10.11}" >"$note"
    expect "up with a note as the message shows it" 0 'Ferrite is up' up
    expect "down again after the note" 0 'cleanly' "$ROOT/ferrite" down --dir "$WORK/data"
    mkdir -p "$WORK/half/mysql"
    touch "$WORK/half/mysql/half"
    printf 'state=creating\nserver=%s\n' "${FERRITE_SERVER:-10.11}" >"$WORK/half/ferrite.instance"
    expect "up of a directory that is half made" 1 'unknown variable.*no-such-thing' up_at "$WORK/half" -- --no-such-thing=1
    expect "it was made anew" 2 'No such file' ls "$WORK/half/mysql/half"
    expect "and is whole" 0 '^state=ready$' cat "$WORK/half/ferrite.instance"
}

# files_of DIR: name and size of all files but the note.
files_of() { find "$1" ! -name 'ferrite.instance*' -printf '%P %y %s\n' | sort; }

# Links that are not of ./ferrite, or lead to somebody who listens, stay as they are.
foreign_socket() {
    python3 -c 'import socket, sys, time
s = [socket.socket(socket.AF_UNIX) for _ in sys.argv[1:]]
for one, path in zip(s, sys.argv[1:]): one.bind(path); one.listen()
time.sleep(60)' "$WORK/foreign/server.sock" "$WORK/foreign/ferrite.sock" &
    LISTENER=$!
    until [[ -S $WORK/foreign/ferrite.sock ]]; do sleep 0.1; done
    ln -s "$WORK/foreign/server.sock" "$WORK/link"
    ln -s "$WORK/foreign/ferrite.sock" "$WORK/link2"
    expect "a link to another server's socket" 1 'is a link to .*/server.sock, which ./ferrite did not make' up --socket "$WORK/link"
    expect "a link to a socket that somebody has" 1 'link2 is in use by another server' up --socket "$WORK/link2"
    expect "the links are what they were" 0 'foreign/server.sock' readlink "$WORK/link"
    kill "$LISTENER"
    wait "$LISTENER" 2>/dev/null || true
    LISTENER=
}

# A server with a binary log, such as a replica to be: what the launcher does for itself is not in it.
binary_log() {
    local name
    rm -rf "$WORK/data"
    for name in first second; do
        expect "up with a binary log, $name start" 0 'Ferrite is up' up -- --log-bin=binlog --server-id=7
        expect "nothing of ours is in the binary log, $name start" 0 '^\[\]$' sql -NBe "SELECT CONCAT('[', @@gtid_binlog_pos, ']')"
        expect "down, $name start" 0 'cleanly' "$ROOT/ferrite" down --dir "$WORK/data"
    done
}

# A server whose messages are in another language, and one that is killed before it has ended.
ends() {
    local pid
    # InnoDB ends in English.
    expect "up in German" 0 'Ferrite is up' up -- --lc-messages=de_DE --skip-innodb
    expect "down in German" 0 'cleanly' "$ROOT/ferrite" down --dir "$WORK/data"
    expect "it said so in German" 0 'Herunterfahren beendet' cat "$WORK/data/ferrite.err"
    expect "up without its file" 0 'Ferrite is up' up
    rm "$WORK/data/ferrite.pid"
    expect "down without its file" 0 'cleanly' "$ROOT/ferrite" down --dir "$WORK/data"
    expect "up to be killed" 0 'Ferrite is up' up
    pid=$(cat "$WORK/data/ferrite.pid")
    kill -STOP "$pid"
    "$ROOT/ferrite" down --dir "$WORK/data" >"$WORK/down.out" 2>&1 &
    until grep -q 'shutting down' "$WORK/down.out"; do sleep 0.05; done
    sleep 0.3
    kill -KILL "$pid"
    wait $! || true
    expect "down of a server that is killed" 0 'the shutdown was not clean' cat "$WORK/down.out"
    # Killed behind InnoDB, before the other engines are closed.
    printf '7\n' >"$WORK/pid"
    printf 'x [Note] InnoDB: Shutdown completed; log sequence number 1; transaction id 2\n' >"$WORK/err"
    expect "InnoDB alone has ended" 0 '^no$' ended 1
    expect "the same, without its file" 0 '^no$' ended ""
    printf 'x [Note] /usr/sbin/mariadbd: Shutdown complete\n' >>"$WORK/err"
    expect "all has ended, without its file" 0 '^yes$' ended ""
    rm "$WORK/pid"
    expect "all has ended" 0 '^yes$' ended 1
}

# ended NOTED: whether process 7 was shut down cleanly, by what it has left in WORK.
ended() {
    # shellcheck disable=SC2016
    env FERRITE_ROOT="$ROOT" AT="$WORK" NOTED="$1" bash -c '
        set -euo pipefail
        . "$FERRITE_ROOT/scripts/lib.sh"
        . "$FERRITE_ROOT/scripts/down.sh"
        PID=7 PID_FILE=$AT/pid ERROR_LOG=$AT/err
        if down_was_clean "$NOTED"; then echo yes; else echo no; fi'
}

# What an older ./ferrite made: no note of access, root without a password from everywhere. It starts, and is closed.
older_directory() {
    expect "up for an older directory" 0 'Ferrite is up' up
    expect "open accounts, as an older one made them" 0 '^$' sql -e "
        ALTER USER root@localhost IDENTIFIED BY ''; DROP USER ferrite@127.0.0.1;
        CREATE USER root@127.0.0.1; GRANT ALL ON *.* TO root@127.0.0.1 WITH GRANT OPTION;
        CREATE USER root@'::1'; CREATE USER root@'a-machine'; CREATE USER app@localhost"
    expect "down for an older directory" 0 'cleanly' "$ROOT/ferrite" down --dir "$WORK/data"
    sed -i '/^access=/d' "$WORK/data/ferrite.instance"
    rm "$WORK/data/ferrite.password"
    chmod 755 "$WORK/data"
    ((EUID != 0)) || chown -R root:root "$WORK/data"
    expect "up of an older directory" 0 'made by an older ./ferrite' up
    expect "the owner comes in" 0 '^1$' sql -NBe 'SELECT 1'
    expect "only accounts that ask for something are left, and those that we did not make" 0 \
        '^app@localhost ferrite@127.0.0.1 mariadb.sys@localhost root@localhost ' \
        bash -c "'$ROOT/ferrite' sql --dir '$WORK/data' -NBe \"SELECT CONCAT(User, '@', Host) FROM mysql.global_priv
            WHERE User <> '$(id -un)' OR User = 'root' ORDER BY 1\" | tr '\n' ' '"
    expect "root on TCP is refused" 1 'Access denied' sql --protocol=tcp --host=127.0.0.1 --port="$PORT" --user=root -e 'SELECT 1'
    expect "the directory is closed" 0 '^700$' stat -c %a "$WORK/data"
    expect "down at the end" 0 'cleanly' "$ROOT/ferrite" down --dir "$WORK/data"
}

# A dump of all databases under enforce_storage_engine moves the server's own tables, and the server starts all the same.
system_tables() {
    local pid dump=("$ROOT/tests/launcher/dump.sh" "--user=$(id -un)" "--socket=$WORK/s" --all-databases "--result-file=$WORK/all.sql")
    rm -rf "$WORK/data"
    expect "up for a dump" 0 'Ferrite is up' up
    expect "all databases dumped" 0 '^$' "${dump[@]}"
    expect "down after the dump" 0 'cleanly' "$ROOT/ferrite" down --dir "$WORK/data"
    expect "up with an enforced engine" 0 'Ferrite is up' up -- --enforce-storage-engine=FERRITE
    expect "the one table that must not move is warned of" 0 'Warning.*1478.*mysql.*plugin.* now uses FERRITE' \
        sql --show-warnings -e "source $WORK/all.sql"
    expect "they have moved" 0 '^FERRITE$' sql -NBe "SELECT ENGINE FROM information_schema.TABLES
        WHERE TABLE_SCHEMA = 'mysql' AND TABLE_NAME = 'global_priv'"
    expect "replication's position is meant to be there" 0 '^$' sql --show-warnings -e 'ALTER TABLE mysql.gtid_slave_pos ENGINE=FERRITE'
    pid=$(cat "$WORK/data/ferrite.pid")
    kill -9 "$pid"
    # Until it is dead it has the files.
    while kill -0 "$pid" 2>/dev/null && ! grep -q '^State:[[:space:]]*Z' "/proc/$pid/status" 2>/dev/null; do sleep 0.05; done
    expect "up after a crash" 0 'Ferrite is up' up
    expect "the accounts are there" 0 '^2$' sql -NBe "SELECT COUNT(*) FROM mysql.global_priv WHERE User IN ('root', 'ferrite')"
    expect "that table moves back" 0 '^$' sql --show-warnings -e 'ALTER TABLE mysql.plugin ENGINE=Aria'
    expect "back to Aria" 0 '^$' sql --show-warnings -e 'ALTER TABLE mysql.global_priv ENGINE=Aria'
    expect "down after the crash" 0 'cleanly' "$ROOT/ferrite" down --dir "$WORK/data"
}

bad_words
interrupted
bad_directories
not_running
if compgen -G "$ROOT/plugin/*.cc" >/dev/null; then
    port_in_use
    # Built once; every `up` below takes it as it is.
    HA_FERRITE_SO=${HA_FERRITE_SO:-$("$ROOT/ferrite" build | tail -n 1)}
    export HA_FERRITE_SO
    a_life
    damaged_note
    foreign_socket
    binary_log
    older_directory
    system_tables
    access_test
else
    echo "plugin/ holds no C++ source yet: the launcher is tested without a server"
fi
printf '%s passed, %s failed\n' "$PASSED" "$FAILED"
((FAILED == 0))
