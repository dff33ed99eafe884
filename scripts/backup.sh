# shellcheck shell=bash
# `./ferrite backup`: a hot backup of a running instance, or of any running server with Ferrite (server.sh).
#
# 1. A connection of our own begins Ferrite's backup, which waits for its point in time.
# 2. mariadb-backup copies the rest. At the end of its BACKUP STAGE, commits are blocked: that is the point in time of
#    both, and of the position in the binary log.
# 3. The server copies Ferrite's pages; this waits for it.
# 4. Everything of it is read again and compared with its checksums; then backup.info is written. Of the backups that
#    an increment stands on, which were verified when they were taken, only their lists of pages are read.
#
# Ferrite's backup ends with the connection: whatever ends this script leaves nothing behind in the server.
#
# Rights: the directory is ours, which may be root's. Only TO/ferrite belongs to the server's account: what that could put beside it,
# such as links, would be followed by what is written here.
# Locking: the directory, until this ends.
# shellcheck source=scripts/backup_files.sh
source "$FERRITE_ROOT/scripts/backup_files.sh"
# shellcheck source=scripts/server.sh
source "$FERRITE_ROOT/scripts/server.sh"

BACKUP_TO='' BACKUP_BASE='' BACKUP_CHAIN=() BACKUP_RATE=''
# What the server's limit was while it is ours.
BACKUP_RATE_BEFORE=''
# The server writes for this backup: what is in the directory is ours.
BACKUP_BEGUN=''

cmd_backup() {
    instance_defaults
    backup_options "$@"
    server_find
    backup_new_dir backup "$BACKUP_TO"
    backup_take_base
    if [[ -n $SERVER_IS ]]; then
        server_account
        server_check_places
        ! server_could_change "$(dirname -- "$BACKUP_TO")" ||
            ferrite_die "the server's account $ACCOUNT could put another directory in the place of $BACKUP_TO, which root writes to" \
                "give one that has only directories above it that $ACCOUNT cannot change"
        server_backup_tool
        server_check_options
        backup_programs
    else
        backup_tools
        account_choose "$DIR"
    fi
    backup_make_dir
    BACKUP_ERRORS=$(mktemp)
    ferrite_at_end backup_ends
    backup_begin
    [[ -z $SERVER_IS ]] || backup_check_place
    backup_rest
    backup_wait
    backup_close
    printf 'Backup of %s is complete and verified: %s (%s).\n' "$DIR" "$BACKUP_TO" "$(du -sh -- "$BACKUP_TO" | cut -f 1)"
}

backup_ends() {
    backup_rate_back
    rm -f -- "$BACKUP_ERRORS"
    # shellcheck disable=SC2153 # coproc sets it
    [[ -z ${CLIENT_PID:-} ]] || kill "$CLIENT_PID" 2>/dev/null || true
}

backup_options() {
    while (($# > 0)); do
        case $1 in
            --dir | --incremental-from | --rate | --socket | --defaults-file)
                ferrite_need_value "$@"
                backup_set "$1" "$2"
                shift
                ;;
            --dir=* | --incremental-from=* | --rate=* | --socket=* | --defaults-file=*) backup_set "${1%%=*}" "${1#*=}" ;;
            -*) ferrite_die "backup: unknown option '$1'" "see ./ferrite help" ;;
            *)
                [[ -z $BACKUP_TO ]] || ferrite_die "backup: a second directory '$1'" "see ./ferrite help"
                BACKUP_TO=$(realpath -m -- "$1")
                ;;
        esac
        shift
    done
    [[ -n $BACKUP_TO ]] || ferrite_die "backup: give the directory that the backup goes to" "see ./ferrite help"
}

backup_set() {
    case $1 in
        --dir) DIR=$2 INSTANCE_ASKED=1 ;;
        --socket | --defaults-file) server_set "$1" "$2" ;;
        --incremental-from) BACKUP_BASE=$(realpath -m -- "$2") ;;
        --rate)
            [[ $2 =~ ^[1-9][0-9]{0,17}$ ]] || ferrite_die "backup: --rate takes a number of bytes per second, not '$2'"
            BACKUP_RATE=$2
            ;;
    esac
}

# The backup to be incremented, and all before it: BACKUP_CHAIN, the full one first.
backup_take_base() {
    local at=$BACKUP_BASE
    while [[ -n $at ]]; do
        backup_must_be "$at"
        BACKUP_CHAIN=("$at" "${BACKUP_CHAIN[@]}")
        at=$(backup_noted "$at" base)
        ((${#BACKUP_CHAIN[@]} < 1000)) || ferrite_die "the increments before $BACKUP_BASE have no beginning"
    done
}

# The server's account passes through TO, also when this is the base of an increment, and can neither list nor change it.
backup_make_dir() {
    backup_take_dir backup "$BACKUP_TO"
    umask 077
    if ((EUID != 0)); then
        chmod 700 -- "$BACKUP_TO"
        return
    fi
    chown -- "root:$(id -g "$ACCOUNT")" "$BACKUP_TO"
    chmod 710 -- "$BACKUP_TO"
    # Until now it may have been that account's.
    backup_new_dir backup "$BACKUP_TO"
    install -d -m 700 -o "$ACCOUNT" -- "$BACKUP_TO/ferrite"
}

backup_begin() {
    instance_login
    coproc CLIENT { instance_client mariadb --batch --skip-column-names --unbuffered 2>"$BACKUP_ERRORS"; }
    # shellcheck disable=SC2153
    exec {CLIENT_IN}>&"${CLIENT[1]}" {CLIENT_OUT}<&"${CLIENT[0]}"
    ferrite_say "beginning a backup into $BACKUP_TO"
    backup_ask "SET GLOBAL ferrite_backup_base='$(backup_quoted "${BACKUP_BASE:+$BACKUP_BASE/ferrite}")'" >/dev/null
    [[ -z $BACKUP_RATE ]] || backup_limit
    backup_ask "SET GLOBAL ferrite_backup_dir='$(backup_quoted "$BACKUP_TO/ferrite")'" >/dev/null
    BACKUP_BEGUN=1
    backup_rate_back
}

# A backup keeps the limit that it begins with.
backup_limit() {
    local before
    before=$(backup_ask "SELECT @@GLOBAL.ferrite_backup_max_rate")
    BACKUP_RATE_BEFORE=$before
    backup_ask "SET GLOBAL ferrite_backup_max_rate=$BACKUP_RATE" >/dev/null
}

# By another connection: the backup's may have ended with an error.
backup_rate_back() {
    local before=$BACKUP_RATE_BEFORE
    [[ -n $before ]] || return 0
    BACKUP_RATE_BEFORE=
    instance_query "SET GLOBAL ferrite_backup_max_rate=$before" >/dev/null ||
        ferrite_warn "ferrite_backup_max_rate could not be set back to $before: it is $BACKUP_RATE"
}

backup_quoted() {
    local text=${1//\\/\\\\}
    printf '%s' "${text//\'/\'\'}"
}

# backup_ask SQL: what the connection answers.
backup_ask() {
    local line
    { printf "%s;\nSELECT 'end of answer';\n" "$1" >&"$CLIENT_IN"; } 2>/dev/null || backup_failed
    while true; do
        IFS= read -r -u "$CLIENT_OUT" line || backup_failed
        [[ $line != 'end of answer' ]] || return 0
        printf '%s\n' "$line"
    done
}

# Nothing in the directory is a backup without backup.info; what was copied so far is removed.
backup_failed() {
    local why=${1:-$(tail -n 1 "$BACKUP_ERRORS")}
    backup_remove
    ferrite_die "the backup failed: ${why:-the connection to the server was lost}" "there is no backup in $BACKUP_TO"
}

backup_remove() {
    # In braces: exec alone would keep the second redirection, and nobody would hear why it failed.
    { exec {CLIENT_IN}>&-; } 2>/dev/null || true
    if [[ -z $BACKUP_BEGUN ]]; then
        [[ ! -d $BACKUP_TO/ferrite ]] || rmdir -- "$BACKUP_TO/ferrite" || true
        return
    fi
    rm -rf -- "$BACKUP_TO/server" "$BACKUP_TO/server.sha256" "$BACKUP_TO/server.log"
    # The server removes its own part when it hears that the connection is gone.
    local ticks=0
    while [[ -d $BACKUP_TO/ferrite && -n $(ls -A -- "$BACKUP_TO/ferrite" 2>/dev/null) && $ticks -lt 100 ]]; do
        sleep 0.1
        ticks=$((ticks + 1))
    done
    rm -rf -- "$BACKUP_TO/ferrite"
}

# Ferrite's part comes from the server, the rest from the directory that it names. One in a container may name another server's here, and
# may write to another TO.
backup_check_place() {
    local copy=$BACKUP_TO/ferrite/superblock database
    [[ -f $copy ]] || backup_failed "the server on $SOCKET has written nothing into $BACKUP_TO/ferrite: it has another $BACKUP_TO, as one in a container"
    database=$(backup_database "$copy")
    [[ $database =~ ^[0-9a-f]{32}$ && $database == "$(backup_database "$DIR/#ferrite/superblock")" ]] ||
        backup_failed "the server on $SOCKET is not the one of $DIR, which it calls its data directory: take the backup where its files have the names that it knows"
}

# backup_database SUPERBLOCK: the database's uuid (docs/internals/file_format.md); of a file with two equal copies, if the first is torn the second's.
backup_database() {
    local at
    for at in 0 4096; do
        [[ $(od -An -tx1 -j "$at" -N 8 -- "$1" | tr -d ' \n') == 4645525249544531 ]] || continue
        od -An -tx1 -j $((at + 32)) -N 16 -- "$1" | tr -d ' \n'
        return
    done
}

# With our own rights: we may read the data directory and connect, as root or as the server's account.
backup_rest() {
    ferrite_say "copying the rest of the instance with mariadb-backup"
    mkdir -- "$BACKUP_TO/server"
    FERRITE_LAST_LINES=12 ferrite_progress "mariadb-backup" backup_run_tool "$BACKUP_TO/server.log" \
        --backup --target-dir="$BACKUP_TO/server" --datadir="$DIR" "${LOGIN[@]}" ||
        backup_failed "mariadb-backup failed; its last words are above"
    backup_check_rest
    [[ -z $SERVER_IS ]] || server_tell_links "$BACKUP_TO/server"
    # The first whole second that is surely behind the point in time: a restore cannot take out what the backup has.
    BACKUP_TAKEN=$(($(date +%s) + 1))
}

# It says `completed OK!` of an increment of its own and of a stream, too. A restore needs these files.
backup_check_rest() {
    local kind at=$BACKUP_TO/server
    kind=$(sed -n 's/^backup_type = //p' "$at/xtrabackup_checkpoints" "$at/mariadb_backup_checkpoints" 2>/dev/null) || true
    [[ $kind == full-backuped && -s $at/backup-my.cnf ]] ||
        backup_failed "mariadb-backup has made no full backup in $at (${kind:-nothing there says of what kind it is})"
}

# backup_run_tool LOG WORDS...
backup_run_tool() {
    local log=$1
    shift
    ferrite_with_libs "$FERRITE_MARIADB_BACKUP" "${DEFAULTS[@]}" "$@" 2>&1 | tee "$log"
    [[ ${PIPESTATUS[0]} -eq 0 ]] && grep -q 'completed OK!' "$log"
}

backup_wait() {
    local state copied pages error ticks=0
    while true; do
        IFS=$'\t' read -r state copied pages error < <(backup_ask "SELECT state, copied_bytes DIV 1048576, page_bytes DIV 1048576, IFNULL(error, '') FROM information_schema.FERRITE_BACKUP")
        case $state in
            COMPLETE) return 0 ;;
            COPYING) ;;
            WAITING) ((ticks < 50)) || backup_failed "mariadb-backup blocked no commits: its copy and Ferrite's would not agree" ;;
            *) backup_failed "${error:-$(tail -n 1 "$BACKUP_ERRORS")}" ;;
        esac
        sleep 0.1
        ticks=$((ticks + 1))
        ((ticks % 50 != 0)) || ferrite_say "  ... Ferrite's data: $copied MiB copied, $pages MiB of them pages"
    done
}

# What mariadb-backup has written of the binary log, by its older or its newer name.
backup_log_info() {
    local info=$BACKUP_TO/server/xtrabackup_binlog_info
    [[ -f $info ]] || info=$BACKUP_TO/server/mariadb_backup_binlog_info
    printf '%s' "$info"
}

backup_close() {
    local info log='' position=0
    info=$(backup_log_info)
    [[ ! -s $info ]] || IFS=$'\t' read -r log position _ <"$info" || true
    [[ -z $log ]] || { backup_is_log "$log" && [[ $position =~ ^[0-9]{1,18}$ ]]; } ||
        backup_failed "mariadb-backup has noted '$log', '$position' as the position in the binary log, which is none"
    ferrite_say "verifying the backup"
    (cd -- "$BACKUP_TO/server" && find . -type f -print0 | sort -z | xargs -0r sha256sum >../server.sha256 && test -s ../server.sha256) ||
        backup_failed "cannot read back $BACKUP_TO/server"
    local status=0
    backup_verify_last "${BACKUP_CHAIN[@]}" "$BACKUP_TO" || status=$?
    case $status in
        0) ;;
        1) backup_failed "a file is not what was written; it is named above" ;;
        *) backup_failed "it could not be verified (code $status$( ((status != 137)) || printf ': the system was short of memory'))" ;;
    esac
    [[ -n $SERVER_IS || ! -r $DIR/ferrite.password ]] || instance_as cat -- "$DIR/ferrite.password" >"$BACKUP_TO/ferrite.password" ||
        backup_failed "cannot read $DIR/ferrite.password"
    rm -f -- "$BACKUP_TO/server.log"
    {
        printf 'version=1\nserver=%s\nserver_version=%s\nbase=%s\n' "$FERRITE_SERVER" "$FERRITE_SERVER_VERSION" "$BACKUP_BASE"
        printf 'taken=%s\n' "$BACKUP_TAKEN"
        [[ -z $SERVER_IS ]] || server_note
        [[ ! -s $info ]] || awk -F '\t' '{printf "binlog_file=%s\nbinlog_position=%s\ngtid=%s\n", $1, $2, $3}' "$info"
    } >"$BACKUP_TO/$BACKUP_INFO.new"
    sync -f -- "$BACKUP_TO"
    mv -- "$BACKUP_TO/$BACKUP_INFO.new" "$BACKUP_TO/$BACKUP_INFO"
    sync -f -- "$BACKUP_TO"
    printf 'exit\n' >&"$CLIENT_IN"
}
