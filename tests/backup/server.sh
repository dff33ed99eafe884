#!/usr/bin/env bash
# ./ferrite backup, restore, snapshot, rewind, open and status of a server that ./ferrite did not make: a plain mariadbd on a data
# directory of its own, which loads the plugin as any server does.
set -euo pipefail

ROOT=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd)
WORK=$(mktemp -d /var/tmp/ferrite-server.XXXXXXXX)
chmod 711 "$WORK"
PASSED=0 FAILED=0
PORT=$((20000 + RANDOM % 10000))

export FERRITE_ROOT=$ROOT
# shellcheck source=scripts/lib.sh
. "$ROOT/scripts/lib.sh"
# shellcheck source=scripts/instance.sh
. "$ROOT/scripts/instance.sh"

# shellcheck source=tests/lib/expect.sh
. "$ROOT/tests/lib/expect.sh"

# ---- plain servers: each in $WORK/NAME, with data and log ----

# Each by the file in its directory.
cleanup() {
    local file
    for file in "$WORK"/*/pid "$WORK"/*/data/pid; do
        [[ ! -e $file ]] || kill -9 "$(cat "$file")" 2>/dev/null || true
    done
    "$ROOT/ferrite" down --dir "$WORK/opened" >/dev/null 2>&1 || true
    rm -rf "$WORK"
}
trap cleanup EXIT

# Where an account that is not root reaches the server's programs; and a PATH on which mariadb-backup is.
prepare() {
    ferrite_ensure_server
    ferrite_ensure_backup_tool
    [[ -n ${HA_FERRITE_SO:-} ]] || ferrite_build
    mkdir "$WORK/plain" "$WORK/path"
    account_choose "$WORK/plain"
    account_runtime
    ((EUID != 0)) || chown "$ACCOUNT" "$WORK/plain"
    printf '#!/bin/sh\nexport LD_LIBRARY_PATH=%q\nexec %q "$@"\n' "$FERRITE_SERVER_LIBS" "$FERRITE_MARIADB_BACKUP" >"$WORK/path/mariadb-backup"
    [[ -n $FERRITE_SERVER_LIBS ]] || sed -i '/LD_LIBRARY_PATH/d' "$WORK/path/mariadb-backup"
    chmod +x "$WORK/path/mariadb-backup"
    export PATH=$WORK/path:$PATH
}

as_account() { (cd / && account_as env -u TMPDIR ${RUN_LIBS:+LD_LIBRARY_PATH="$RUN_LIBS"} "$@"); }

# What its InnoDB was made with, and where its log is: both matter to mariadb-backup.
OPTIONS=(--innodb-page-size=8k '--innodb-data-file-path=ibdata1:12M;ibdata2:12M:autoextend' --innodb-log-group-home-dir="$WORK/log")

create() {
    mkdir "$WORK/log"
    ((EUID != 0)) || chown "$ACCOUNT" "$WORK/log"
    as_account "$RUN_PREFIX/bin/mariadb-install-db" --no-defaults --basedir="$RUN_PREFIX" --datadir="$WORK/plain/data" --force \
        --auth-root-authentication-method=socket --auth-root-socket-user="$(account_me)" --skip-name-resolve \
        "${OPTIONS[@]}" >"$WORK/create.log" 2>&1
}

# start NAME DATADIR [OPTION...]
start() {
    local ticks=0
    as_account "$RUN_MARIADBD" --no-defaults --basedir="$RUN_PREFIX" --datadir="$2" --lc-messages-dir="$RUN_SHARE" \
        --character-sets-dir="$RUN_SHARE/charsets" --plugin-dir="$RUN_PLUGINS" --plugin-maturity=experimental --plugin-load-add=ha_ferrite.so \
        --skip-networking --socket="$2/s" --pid-file="$2/pid" --log-bin=bin --server-id=1 --gtid-domain-id=3 --character-set-server=latin1 \
        "${OPTIONS[@]}" "${@:3}" >"$WORK/$1.log" 2>&1 &
    local pid=$!
    until ask "$2" 'SELECT 1' >/dev/null 2>&1; do
        if ! kill -0 "$pid" 2>/dev/null || ((ticks++ > 600)); then
            tail -n 20 "$WORK/$1.log"
            return 1
        fi
        sleep 0.1
    done
    echo started
}

# stop DATADIR: it takes its file away last.
stop() {
    kill "$(cat "$1/pid")"
    while [[ -e $1/pid ]]; do sleep 0.1; done
}

# ask DATADIR SQL
ask() { ferrite_with_libs "$FERRITE_SERVER_PREFIX/bin/mariadb" --no-defaults --user="$(account_me)" --socket="$1/s" --batch --skip-column-names -e "$2"; }
rows() { ask "$1" "SELECT GROUP_CONCAT(n ORDER BY n) FROM d.t"; }
users() { ask "$1" "SELECT Host, User, Priv FROM mysql.global_priv ORDER BY 1, 2"; }
ferrite() { "$ROOT/ferrite" "$@"; }

# ---- the cases ----

refusals() {
    expect "no server there" 1 'the server does not answer: ERROR 2002' ferrite backup "$WORK/x" --socket "$WORK/none"
    expect "an instance and a server" 1 'give one of them' ferrite backup "$WORK/x" --socket "$WORK/none" --dir "$WORK/x"
    expect "no option file" 1 'cannot be read' ferrite backup "$WORK/x" --defaults-file "$WORK/none"
    expect "its directory is no instance's" 1 'server that ./ferrite did not start' ferrite backup "$WORK/x" --dir "$DATA"
    expect "into its data directory" 1 'is inside the data directory' ferrite backup "$DATA/b" --socket "$DATA/s"
    ((EUID != 0)) || expect "where its account could swap it" 1 'could put another directory in the place' ferrite backup "$WORK/plain/b/x" --socket "$DATA/s"
    expect "over its data directory" 1 'is the data directory of a server' ferrite backup "$DATA" --socket "$DATA/s"
    expect "a rate that is none" 1 "not 'fast'" ferrite backup "$WORK/x" --socket "$DATA/s" --rate fast
    expect "a restore over it" 1 'is the data directory of a server' ferrite restore "$WORK/b1" --into "$DATA"
    expect "a restore into it" 1 'is inside the data directory' ferrite restore "$WORK/b1" --into "$DATA/r"
    [[ ! -e $WORK/x ]] || { FAILED=$((FAILED + 1)) && echo "FAILED: something refused was made"; }
}

# Without a server: what server.sh says of rights and programs. in_script WORDS...: with its functions.
in_script() {
    # shellcheck disable=SC2016
    env FERRITE_ROOT="$ROOT" bash -c '
        set -euo pipefail
        . "$FERRITE_ROOT/scripts/lib.sh"
        . "$FERRITE_ROOT/scripts/server.sh"
        FERRITE_SERVER_LIBS="" FERRITE_SERVER_VERSION=10.11.99 SOCKET=/s
        eval "$1"' _ "$1"
}

programs() {
    local other=$WORK/other
    mkdir -p "$other/bin"
    expect "no mariadb-backup" 1 'mariadb-backup is missing: it is neither in .*/other/bin nor on the PATH' \
        in_script "PATH=/usr/bin:/bin; SERVER_FACTS[basedir]=$other/; server_backup_tool"
    # shellcheck disable=SC2016
    printf '#!/bin/sh\necho "mariadb-backup based on MariaDB server 10.11.1-MariaDB"\n' >"$other/bin/mariadb-backup"
    chmod +x "$other/bin/mariadb-backup"
    expect "one of another version" 1 'is of 10.11.1, and the server is MariaDB 10.11.99' \
        in_script "PATH=/usr/bin:/bin; SERVER_FACTS[basedir]=$other/; server_backup_tool"
    expect "one that the server's account could change" 1 'which the server.s account .* could change, is not run' \
        in_script "PATH=/usr/bin:/bin; SERVER_FACTS[basedir]=$other/; ACCOUNT=$(account_me) AS=(env); server_backup_tool"
    ((EUID != 0)) || beside "$other"
    expect "no directory" 1 'is not here, or closed to' in_script "DIR=$WORK/none; server_account"
    expect "no Ferrite in it" 1 'has no Ferrite tables' in_script "DIR=$other; server_account"
    ((EUID == 0)) || return 0
    setpriv --reuid=nobody --regid=nogroup --clear-groups test -r "$ROOT/scripts/lib.sh" || return 0
    expect "who cannot read it" 1 "belongs to $ACCOUNT and is closed to nobody" \
        setpriv --reuid=nobody --regid=nogroup --clear-groups env FERRITE_ROOT="$ROOT" bash -c \
        ". $ROOT/scripts/lib.sh; . $ROOT/scripts/server.sh; SOCKET=/s DIR=$DATA; server_account"
}

# fake_client [NAME VALUE]...: a client on the path $WORK/fake whose server says this; its own socket is $WORK/fake/s.
fake_client() {
    mkdir -p "$WORK/fake/data/#ferrite"
    printf 'version\t10.11.99-MariaDB\ndatadir\t%s\nport\t3306\nuptime\t90061\nengine\tFerrite 1.0, ACTIVE\n' "$WORK/fake/data" >"$WORK/fake/said"
    ((${#@} == 0)) || printf '%s\t%s\n' "$@" >>"$WORK/fake/said"
    # shellcheck disable=SC2016
    printf '#!/bin/sh\ncase "$*" in *\\\\s) printf "UNIX socket:\\t\\t%s\\n" ;; *) cat %s ;; esac\n' "$WORK/fake/s" "$WORK/fake/said" >"$WORK/fake/mariadb"
    chmod +x "$WORK/fake/mariadb"
}

# told NAME=VALUE...: a backup whose backup.info says this, with these files of a binary log.
told() {
    rm -rf "$WORK/told" && mkdir -p "$WORK/told/bin"
    printf '%s\n' version=1 kind=server server=10.11 "$@" >"$WORK/told/backup.info"
    touch "$WORK/told/bin.000001" "$WORK/told/bin.0+PATH[\$(touch ran)]" "$WORK/told/bin/mariadb-binlog"
    chmod +x "$WORK/told/bin/mariadb-binlog"
}

until_told() {
    in_script ". $ROOT/scripts/restore.sh; cd $WORK/told; RESTORE_LAST=$WORK/told RESTORE_BINLOGS=$WORK/told RESTORE_UNTIL='${1:-0-1-1}'
        FERRITE_MARIADBD=/bin/true FERRITE_SERVER_PREFIX=$WORK/told; restore_check_until"
}

# What the server says of itself and what backup.info says are words, and no arithmetic, which would run commands in them.
words() {
    local connect="PATH=$WORK/fake:\$PATH; cd $WORK/fake; server_connect; server_status" ran="PATH[\$(touch $WORK/fake/ran)]"
    fake_client
    expect "what it says" 0 'uptime   1 d 01:01:01' in_script "$connect"
    fake_client uptime "$ran" port "$ran"
    expect "an uptime that is a command" 0 'uptime   0 d 00:00:00' in_script "$connect"
    expect "it was not run" 1 '' test -e "$WORK/fake/ran"
    told "binlog_file=bin.0+PATH[\$(touch ran)]" binlog_position=4
    expect "a file's number that is a command" 1 'binlog_file is .bin.0\+PATH' until_told
    told binlog_file=bin.000001 "binlog_position=PATH[\$(touch ran)]"
    expect "a position that is a command" 1 'binlog_position is .PATH\[' until_told
    told binlog_file=bin.000001 binlog_position=4 "taken=PATH[\$(touch ran)]"
    expect "a time that is a command" 1 'taken is .PATH\[' until_told '2026-01-31 00:00:00'
    expect "none was run" 1 '' test -e "$WORK/told/ran"
    mkdir -p "$WORK/closed/server"
    printf 'bin.0+PATH[x]\t4\t\n' >"$WORK/closed/server/xtrabackup_binlog_info"
    expect "a backup with such a file" 1 "noted .bin.0\\+PATH\\[x\\]., .4. as the position" \
        in_script ". $ROOT/scripts/backup.sh; BACKUP_TO=$WORK/closed BACKUP_ERRORS=/dev/null CLIENT_IN=9; backup_close"
}

# A server whose files have other names here than it knows: its socket is the client's, and its directory is compared with its copy.
elsewhere() {
    local at=$WORK/place place name
    fake_client socket "$DATA/s"
    expect "its socket is the client's" 0 "--socket=$WORK/fake/s\$" \
        in_script "PATH=$WORK/fake:\$PATH; SERVER_DEFAULTS=$WORK/fake/said; server_connect; echo \"\${LOGIN[*]}\""
    place=". $ROOT/scripts/backup.sh; BACKUP_TO=$at DIR=$at/data BACKUP_ERRORS=/dev/null CLIENT_IN=9 BACKUP_BEGUN=1; backup_check_place; echo same"
    mkdir -p "$at/ferrite" "$at/data/#ferrite"
    expect "it writes to another directory" 1 'has written nothing into' in_script "$place"
    mkdir -p "$at/ferrite"
    for name in ferrite data/#ferrite; do superblock 0123456789abcdef "$at/$name/superblock"; done
    expect "its own directory" 0 '^same$' in_script "$place"
    head -c 64 /dev/zero | dd of="$at/data/#ferrite/superblock" conv=notrunc status=none
    expect "with a torn superblock" 0 '^same$' in_script "$place"
    superblock 0123456789abcdeF "$at/data/#ferrite/superblock"
    expect "another server's directory" 1 "is not the one of $at/data" in_script "$place"
}

# What makes mariadb-backup leave something out is refused before, and looked for behind it.
partial() {
    local line at=$WORK/partial check
    mkdir -p "$at/server"
    for line in stream=mbstream loose_tables-ex=d.t compress databases='a b' incremental_basedir=/x enable-export; do
        printf '[client]\nuser=x\n[mariabackup]\nopen-files-limit=9\n%s\n' "$line" >"$at/cnf"
        expect "an option file with $line" 1 'this would be no whole backup' \
            in_script "SERVER_BIN=$FERRITE_SERVER_PREFIX/bin FERRITE_SERVER_LIBS=$FERRITE_SERVER_LIBS DEFAULTS=(--defaults-file=$at/cnf); server_check_options"
    done
    printf '[client]\nuser=x\n[mariadb-backup]\nthrottle=9\ncompress-threads=2\n[mysqldump]\ntables=x\n' >"$at/cnf"
    expect "others" 0 '^$' in_script "SERVER_BIN=$FERRITE_SERVER_PREFIX/bin FERRITE_SERVER_LIBS=$FERRITE_SERVER_LIBS DEFAULTS=(--defaults-file=$at/cnf); server_check_options"
    check=". $ROOT/scripts/backup.sh; BACKUP_TO=$at BACKUP_ERRORS=/dev/null CLIENT_IN=9; backup_check_rest"
    expect "nothing there" 1 'nothing there says' in_script "$check"
    printf 'x=1\n' >"$at/server/backup-my.cnf"
    printf 'backup_type = incremental\n' >"$at/server/mariadb_backup_checkpoints"
    expect "an increment of its own" 1 'no full backup .*incremental' in_script "$check"
    printf 'backup_type = full-backuped\n' >"$at/server/mariadb_backup_checkpoints"
    expect "a full one" 0 '^$' in_script "$check"
}

# What root believes: no place that the server's account could swap, and no word of a backup.info that is not root's.
believed() {
    local at=$WORK/above owner=". $ROOT/scripts/restore.sh; RESTORE_FROM=($WORK/told) RESTORE_LAST=$WORK/told; ASKED_ACCOUNT=\${ASKED:-}; restore_server_owner; echo \"\$ASKED_ACCOUNT \${RESTORE_OPTIONS[*]}\""
    local above=". $ROOT/scripts/server.sh; ACCOUNT=nobody; account_switch nobody; server_could_change"
    told owner=nobody option=--innodb-page-size=8k
    expect "an owner and an option" 0 'innodb-page-size=8k$' in_script "$owner"
    told owner=nobody option=--init-file=/x
    expect "an option that no backup notes" 1 "has the option '--init-file=/x'" in_script "$owner"
    told owner=nobody 'option=innodb-page-size=8k'
    expect "a word that is none" 1 'which no backup notes' in_script "$owner"
    ((EUID == 0)) || return 0
    told owner=root
    expect "an owner that is root" 1 'owner root' in_script "$owner"
    expect "unless asked for" 0 '^root ' in_script "ASKED=root; $owner"
    told owner=nobody
    chown nobody "$WORK/told/backup.info"
    expect "a backup.info of another account" 1 'belongs to nobody, who could' in_script "$owner"
    mkdir -p "$at/sticky" "$at/open" "$at/his/ours"
    chmod 1777 "$at/sticky"
    chmod 777 "$at/open"
    chown nobody "$at/his"
    expect "a sticky directory" 1 '^$' in_script "$above $at/sticky/more"
    expect "an open one" 0 '^$' in_script "$above $at/open/more"
    expect "one in his" 0 '^$' in_script "$above $at/his/ours"
}

# beside BASEDIR: as root, its mariadb-backup of another version, and libraries, are run only if they are root's.
beside() {
    local tool="PATH=/usr/bin:/bin; SERVER_FACTS[basedir]=$1/; ACCOUNT=nobody; account_switch nobody; server_backup_tool"
    local libs="server_libs_beside $1"
    expect "one that only root could change" 1 'is of 10.11.1' in_script "$tool"
    chmod 775 "$1/bin"
    expect "one in a group's directory" 1 'which others than root could change, is not run' in_script "$tool"
    chmod 755 "$1/bin"
    chown daemon "$1"
    expect "one in another account's" 1 'which others than root could change, is not run' in_script "$tool"
    chown root "$1"
    mkdir -p "$1/lib/x-linux-gnu" "$1/more/lib/x-linux-gnu"
    expect "libraries beside it" 0 "^$1/lib/x-linux-gnu\$" in_script "$libs"
    expect "and above it" 0 "^$1/more/lib/x-linux-gnu:$1/lib/x-linux-gnu\$" in_script "$libs/more"
    chmod 1777 "$1/lib/x-linux-gnu"
    expect "libraries that are others'" 0 '^$' in_script "$libs"
}

# Files of InnoDB that a restored directory does not lead to.
places() {
    expect "files with paths" 1 'innodb_data_file_path has a path in it' in_script "SERVER_FACTS[innodb_data_file_path]='/a/ibdata1:12M:autoextend'; server_check_places"
    expect "files without" 0 '^$' in_script "SERVER_FACTS[innodb_data_file_path]='ibdata1:12M;ibdata2:12M:autoextend'; server_check_places"
    mkdir -p "$WORK/links/d"
    expect "no tables elsewhere" 0 '^$' in_script "server_tell_links $WORK/links"
    touch "$WORK/links/d/t.isl"
    expect "a table elsewhere" 0 'DATA DIRECTORY of their own .d/t.isl.' in_script "server_tell_links $WORK/links"
    told datadir=/old place=--innodb-log-group-home-dir
    expect "where they are is said before the start" 0 'before you start it.*start mariadb' \
        in_script ". $ROOT/scripts/restore.sh; RESTORE_LAST=$WORK/told DIR=$WORK/links ACCOUNT=x; restore_server_say | tr '\\n' ' '"
}

# A stopped server's option files say where its log of DDL and its replication's file are.
defaults() {
    local at=$WORK/defaults rewind
    mkdir -p "$at/data/#ferrite"
    printf 'x\n' >"$at/data/other.info"
    printf '#!/bin/sh\nprintf "%%s\\n" --datadir=%s --log_ddl_recovery=/elsewhere/ddl --master-info-file=other.info\n' "$at/data" >"$at/my_print_defaults"
    chmod +x "$at/my_print_defaults"
    rewind=". $ROOT/scripts/rewind.sh; PATH=$at:\$PATH DIR= SOCKET=; rewind_find; DIR=$at/data"
    expect "the log of DDL" 0 '^/elsewhere/ddl$' in_script "$rewind; rewind_option --log-ddl-recovery"
    expect "what is given wins" 0 '^/given$' in_script "$rewind; REWIND_UP=(-- --log-ddl-recovery /given); rewind_option --log-ddl-recovery"
    expect "a replica" 0 '^other.info$' in_script "$rewind; rewind_is_replica ''"
    rm "$at/data/other.info"
    expect "none" 0 '^$' in_script "$rewind; rewind_is_replica ''"
}

# What a note in a directory that the server's account can write says to a rewind by root.
noted() {
    local at=$WORK/noted rewind=". $ROOT/scripts/rewind.sh; account_me() { echo me; }; server_default_dir() { echo $WORK/noted; }
        SOCKET=''; instance_choose_server() { echo an instance; exit 7; }; rewind_find; echo \"\$REWIND_OWN \$ACCOUNT\""
    local socket=". $ROOT/scripts/rewind.sh; DIR=$at ACCOUNT=nobody; account_switch nobody"
    mkdir -p "$at/#ferrite" "$at/ours"
    printf 'state=ready\nserver=10.11\nsocket=/etc/x\n' >"$at/ferrite.instance"
    expect "the machine's own server is no instance" 0 "^1 $(stat -c %U "$at")\$" in_script "DIR=; $rewind"
    expect "an instance that is named" 7 'an instance' in_script "DIR=$at; $rewind"
    ((EUID == 0)) || return 0
    expect "a socket elsewhere" 0 "^$at/ferrite.sock\$" in_script "$socket; SOCKET=$at/ours/x; rewind_check_socket; echo \$SOCKET"
    ln -s "$at/ferrite.sock" "$at/ours/s"
    expect "a link that up has made" 0 "^$at/ours/s\$" in_script "$socket; SOCKET=$at/ours/s; rewind_check_socket; echo \$SOCKET"
    chown nobody "$at/ours"
    expect "one that the account could make" 0 "^$at/ferrite.sock\$" in_script "$socket; SOCKET=$at/ours/s; rewind_check_socket; echo \$SOCKET"
}

# superblock UUID FILE: two copies.
superblock() {
    {
        printf 'FERRITE1%24s%s' '' "$1"
        head -c $((4096 - 32 - ${#1})) /dev/zero
    } >"$2.one"
    cat "$2.one" "$2.one" >"$2"
}

# restored DIR ROWS USERS: a plain server on it has these rows, of both engines, and the users that the file has.
restored() {
    expect "$1 has nothing of ./ferrite" 0 '^$' find "$WORK/$1" -maxdepth 1 \( -name 'ferrite*' -o -name '.*' -o -name 'xtrabackup*' -o -name backup-my.cnf \) ! -path "$WORK/$1" -print
    expect "$1 is the account's" 0 '^$' find "$WORK/$1" ! -user "$ACCOUNT" -print
    expect "$1 starts" 0 '' start "$1" "$WORK/$1" --innodb-log-group-home-dir="$WORK/$1"
    expect "$1 has the rows" 0 "^$2\$" rows "$WORK/$1"
    expect "$1 has InnoDB's" 0 '^7$' ask "$WORK/$1" "SELECT n FROM d.i"
    expect "$1 is whole" 0 'OK' ask "$WORK/$1" "CHECK TABLE d.t EXTENDED"
    expect "$1 has the users" 0 '^$' diff <(users "$WORK/$1") "$3"
}

# A second server on a snapshot, and back to it.
snapshots() {
    expect "a snapshot" 0 'Snapshot before is kept' ferrite snapshot before --socket "$DATA/s"
    ask "$DATA" "DELETE FROM d.t"
    expect "it is listed" 0 'before.*' ferrite snapshot --list --defaults-file "$WORK/client.cnf"
    expect "opened beside it" 0 'Snapshot before is open' ferrite open before --port "$PORT" --dir "$DATA" --at "$WORK/opened"
    expect "what was deleted" 0 '^1,2,3,4$' ferrite sql --dir "$WORK/opened" --batch --skip-column-names -e "SELECT GROUP_CONCAT(n ORDER BY n) FROM d.t"
    expect "closed" 0 'cleanly' ferrite down --dir "$WORK/opened"
    expect "a rewind of a running server" 1 'reason is above' ferrite rewind before --dir "$DATA" --force --binlog continue
    stop "$DATA"
    expect "other engines" 1 'WOULD NOT GO BACK: d/i' ferrite rewind before --dir "$DATA"
    expect "a binary log" 1 '--binlog reset' ferrite rewind before --dir "$DATA" --force
    expect "no such snapshot" 1 'there is no snapshot after' ferrite rewind after --dir "$DATA"
    expect "back" 0 'start the server again' ferrite rewind before --dir "$DATA" --force --binlog continue
    expect "all is the account's" 0 '^$' find "$DATA" ! -user "$ACCOUNT" -print
    start plain "$DATA"
    expect "the rows are back" 0 '^1,2,3,4$' rows "$DATA"
}

prepare
DATA=$WORK/plain/data
create
start plain "$DATA"
ask "$DATA" "CREATE DATABASE d; CREATE TABLE d.t (n INT PRIMARY KEY) ENGINE=FERRITE; CREATE TABLE d.i (n INT PRIMARY KEY) ENGINE=InnoDB;
    INSERT INTO d.i VALUES (7); INSERT INTO d.t VALUES (1), (2); CREATE USER someone@localhost IDENTIFIED BY 'secret';
    CREATE USER saver@localhost IDENTIFIED BY 'his password'; GRANT SUPER, FILE, RELOAD, PROCESS, LOCK TABLES, BINLOG MONITOR ON *.* TO saver@localhost"
users "$DATA" >"$WORK/users"
# An account with a password, and how others reach the server, which is of no matter here.
printf '[client]\nsocket=%s\nuser=saver\npassword="his password"\nhost=127.0.0.1\nport=1\n' "$DATA/s" >"$WORK/client.cnf"
chmod 600 "$WORK/client.cnf"
expect "status" 0 'engine +Ferrite .*ACTIVE' ferrite status --socket "$DATA/s"
expect "a full backup" 0 'is complete and verified' ferrite backup "$WORK/b1" --socket "$DATA/s"
expect "what it is of" 0 "^kind=server owner=$ACCOUNT datadir=$DATA\$" bash -c "grep -E '^(kind|owner|datadir)=' '$WORK/b1/backup.info' | paste -sd ' '"
refusals
programs
words
elsewhere
partial
believed
places
noted
defaults
ask "$DATA" "INSERT INTO d.t VALUES (3); SET GLOBAL ferrite_backup_max_rate = 7654321"
expect "an increment" 0 'is complete and verified' ferrite backup "$WORK/b2" --incremental-from "$WORK/b1" --defaults-file "$WORK/client.cnf" --rate 100000000
expect "its limit is as it was" 0 '^7654321$' ask "$DATA" "SELECT @@ferrite_backup_max_rate"
# One whose engine is the server's default, and a user.
ask "$DATA" "CREATE TABLE d.other (n INT PRIMARY KEY, w VARCHAR(9)); CREATE USER later@localhost; INSERT INTO d.t VALUES (4)"
GTID=$(ask "$DATA" "SELECT @@gtid_binlog_pos")
users "$DATA" >"$WORK/users.later"
ask "$DATA" "INSERT INTO d.t VALUES (5); DROP USER later@localhost; DELETE FROM d.t WHERE n = 5"
mkdir "$WORK/binlogs"
cp "$DATA"/bin.[0-9]* "$WORK/binlogs/"

expect "restore" 0 "mariadbd --datadir=$WORK/r1 --user=$ACCOUNT .*--innodb-log-group-home-dir=$WORK/r1\$" ferrite restore "$WORK/b1" --into "$WORK/r1"
restored r1 1,2 "$WORK/users"
stop "$WORK/r1"
expect "restore an increment" 0 'systemctl start mariadb' ferrite restore "$WORK/b1" "$WORK/b2" --into "$WORK/r2"
restored r2 1,2,3 "$WORK/users"
stop "$WORK/r2"
expect "restore up to a GTID" 0 "^The last transaction applied .* $GTID" \
    ferrite restore "$WORK/b1" --into "$WORK/r3" --until "$GTID" --binlogs "$WORK/binlogs"
restored r3 1,2,3,4 "$WORK/users.later"
expect "the table's engine and characters" 0 '^InnoDB latin1_swedish_ci$' \
    ask "$WORK/r3" "SELECT CONCAT(ENGINE, ' ', TABLE_COLLATION) FROM information_schema.TABLES WHERE TABLE_NAME = 'other'"
stop "$WORK/r3"
if ((EUID == 0)); then
    expect "no such account" 1 'there is no account' ferrite restore "$WORK/b1" --into "$WORK/r4" --owner no-such-account
    expect "for another account" 0 'belongs to nobody' ferrite restore "$WORK/b1" --into "$WORK/r4" --owner nobody
    expect "it is that account's" 0 '^$' find "$WORK/r4" ! -user nobody -print
fi
snapshots
stop "$DATA"

printf 'server: %s passed, %s failed\n' "$PASSED" "$FAILED"
((FAILED == 0))
