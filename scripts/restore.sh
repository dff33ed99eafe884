# shellcheck shell=bash
# `./ferrite restore`: a new data directory from a full backup and its increments, to a point in time if that is asked for.
#
# Everything is verified before anything is written. The note that makes a directory one of ./ferrite is written last; while
# the binary log is applied it says so, and nothing but this restore starts a server there.
#
# Of a server that was no instance (restore_server.sh) the directory becomes one for its owner's own mariadbd: nothing of
# ./ferrite stays in it.
#
# Locking: the directory, as by `./ferrite up`, from before the first file in it (BACKUP_LOCK); not while the binary log is applied.
# shellcheck source=scripts/backup_files.sh
source "$FERRITE_ROOT/scripts/backup_files.sh"
# shellcheck source=scripts/access.sh
source "$FERRITE_ROOT/scripts/access.sh"
# shellcheck source=scripts/server.sh
source "$FERRITE_ROOT/scripts/server.sh"
# shellcheck source=scripts/restore_server.sh
source "$FERRITE_ROOT/scripts/restore_server.sh"

RESTORE_FROM=() RESTORE_INTO='' RESTORE_UNTIL='' RESTORE_BINLOGS='' RESTORE_ENCRYPTION=()
# The files of the binary log that are applied, the words that say from where to where, and its last transaction there.
RESTORE_FILES=() RESTORE_RANGE=() RESTORE_APPLIED='' RESTORE_LEFT_OUT=''
# A directory for the socket of the server that applies it, as long as that may run.
RESTORE_SERVER=''

cmd_restore() {
    restore_options "$@"
    restore_check
    backup_tools
    restore_verified "the backup" "is damaged" "and $RESTORE_INTO was not made" \
        "verifying ${#RESTORE_FROM[@]} backup(s)" backup_verify_chain "${RESTORE_FROM[@]}"
    restore_dir
    ferrite_at_end restore_cut_off
    restore_server_files
    restore_ferrite
    restore_note
    [[ -z $RESTORE_APPLIED ]] || restore_replay
    trap - EXIT INT
    [[ -z $RESTORE_UNTIL ]] || restore_say_applied
    printf 'Restored %s into %s.\n' "${RESTORE_FROM[*]}" "$DIR"
    if restore_is_server; then
        restore_server_say
    else
        printf 'Start it with: ./ferrite up --dir %q\n' "$DIR"
    fi
}

restore_options() {
    while (($# > 0)); do
        case $1 in
            --into | --until | --binlogs | --encrypt | --owner)
                ferrite_need_value "$@"
                restore_set "$1" "$2"
                shift
                ;;
            --into=* | --until=* | --binlogs=* | --encrypt=* | --owner=*) restore_set "${1%%=*}" "${1#*=}" ;;
            --decrypt) restore_set "$1" "" ;;
            --)
                shift
                SERVER_OPTIONS=("$@")
                break
                ;;
            -*) ferrite_die "restore: unknown option '$1'" "see ./ferrite help" ;;
            *) RESTORE_FROM+=("$(realpath -m -- "$1")") ;;
        esac
        shift
    done
    restore_check_options
}

restore_check_options() {
    ((${#RESTORE_FROM[@]} > 0)) || ferrite_die "restore: give a backup" "see ./ferrite help"
    [[ -n $RESTORE_INTO ]] || ferrite_die "restore: give a new directory with --into" "see ./ferrite help"
    [[ -z $RESTORE_UNTIL || -n $RESTORE_BINLOGS ]] || ferrite_die "--until needs --binlogs, the directory of the binary log's files"
    [[ -z $RESTORE_BINLOGS || -n $RESTORE_UNTIL ]] || ferrite_die "--binlogs needs --until, a time or a GTID"
    [[ ${#SERVER_OPTIONS[@]} -eq 0 || -n $RESTORE_UNTIL ]] ||
        ferrite_die "restore: what stands after -- is for the server that applies the binary log: it needs --until"
    # Not when that server is started, after hours of copying.
    instance_check_options
    account_take_asked
    restore_take_owner
    [[ ${#RESTORE_ENCRYPTION[@]} -eq 0 || -n ${FERRITE_ENCRYPTION_KEYS:-} ]] ||
        ferrite_die "restore: ${RESTORE_ENCRYPTION[0]} needs the server's keys" "name the file that has them in FERRITE_ENCRYPTION_KEYS, see docs/operating/encryption.md"
}

restore_set() {
    case $1 in
        --into) RESTORE_INTO=$(realpath -m -- "$2") ;;
        --until) RESTORE_UNTIL=$2 ;;
        --binlogs) RESTORE_BINLOGS=$(realpath -m -- "$2") ;;
        --owner) RESTORE_OWNER=$2 ;;
        --encrypt | --decrypt)
            ((${#RESTORE_ENCRYPTION[@]} == 0)) || ferrite_die "restore: give --encrypt or --decrypt, and once"
            [[ $1 == --decrypt || $2 =~ ^[1-9][0-9]*$ ]] || ferrite_die "restore: --encrypt needs the number of a key, not '$2'"
            RESTORE_ENCRYPTION=("$1" ${2:+"$2"})
            ;;
    esac
}

restore_check() {
    local dir
    for dir in "${RESTORE_FROM[@]}"; do backup_must_be "$dir"; done
    RESTORE_LAST=${RESTORE_FROM[-1]}
    backup_new_dir restore "$RESTORE_INTO"
    ! restore_is_server || restore_server_owner
    restore_check_account
    FERRITE_SERVER=$(backup_noted "$RESTORE_LAST" server)
    export FERRITE_SERVER
    ferrite_choose_server ""
    ferrite_ensure_server
    local made
    made=$(backup_noted "$RESTORE_LAST" server_version)
    ferrite_version_at_least "$FERRITE_SERVER_VERSION" "$made" ||
        ferrite_die "$RESTORE_LAST was made by MariaDB $made, and this one is $FERRITE_SERVER_VERSION"
    [[ -z $RESTORE_UNTIL ]] || restore_check_until
}

# The server's account has to come there: that is said before hours of copying.
restore_check_account() {
    local above
    above=$(dirname -- "$RESTORE_INTO")
    while [[ ! -e $above ]]; do above=$(dirname -- "$above"); done
    account_choose "$RESTORE_INTO" "$ASKED_ACCOUNT"
    (cd / && account_as test -x "$above") || ferrite_die "the server's account $ACCOUNT cannot enter $above" "give another directory"
}

# The binary log has to begin where the backup ends.
restore_check_until() {
    local first until program taken
    for program in "$FERRITE_MARIADBD" "$FERRITE_SERVER_PREFIX/bin/mariadb-binlog"; do
        [[ -x $program ]] || ferrite_die "--until: $program is missing" "install the packages mariadb-server and mariadb-client"
    done
    [[ -d $RESTORE_BINLOGS ]] || ferrite_die "--binlogs: there is no directory $RESTORE_BINLOGS"
    first=$(backup_noted "$RESTORE_LAST" binlog_file)
    [[ -n $first ]] || ferrite_die "$RESTORE_LAST has no position in a binary log: the server ran without one (log_bin)" \
        "only what the backup has can be restored: leave --until out"
    # As arithmetic, a word that is no number may be a command.
    backup_is_log "$first" || restore_not_noted binlog_file "$first"
    restore_number binlog_position >/dev/null
    [[ -f $RESTORE_BINLOGS/$first ]] ||
        ferrite_die "$RESTORE_BINLOGS/$first is missing: the backup ends in this file of the binary log"
    restore_binlog_files
    if [[ $RESTORE_UNTIL =~ ^[0-9]+-[0-9]+-[0-9]+$ ]]; then
        restore_find_end "$RESTORE_UNTIL" "--until $RESTORE_UNTIL is not in the binary log in $RESTORE_BINLOGS after the backup" \
            "the reason is above; nothing was made. For the moment of the backup itself, leave --until out; a day needs a time, too: '2026-01-31 00:00:00'"
        return
    fi
    until=$(date -d "$RESTORE_UNTIL" +%s 2>/dev/null) ||
        ferrite_die "--until '$RESTORE_UNTIL' is no time and no GTID" "for instance '2026-01-31 12:00:00' or 0-1-4711"
    taken=$(restore_number taken) || exit 1
    ((until >= taken)) ||
        ferrite_die "--until '$RESTORE_UNTIL' is before the end of the backup $RESTORE_LAST" "give an earlier backup"
    restore_find_end "@$until" "cannot find $RESTORE_UNTIL in the binary log in $RESTORE_BINLOGS" "the reason is above; nothing was made"
}

# restore_number NAME: what backup.info says of it.
restore_number() {
    local value
    value=$(backup_noted "$RESTORE_LAST" "$1")
    [[ $value =~ ^(0|[1-9][0-9]{0,17})$ ]] || restore_not_noted "$1" "$value"
    printf '%s' "$value"
}

restore_not_noted() {
    ferrite_die "$RESTORE_LAST/$BACKUP_INFO is damaged: $1 is '$2'" "without --until it is not needed: only what the backup has is restored then"
}

# restore_find_end END WORDS...: a GTID or @SECONDS, and what to say if it is not found. The end is given by file and
# offset: mariadb-binlog leaves out all domains but that of a GTID that it is given, and does not miss one that is not
# there; a time it takes as the local one, in which two hours of a year can have the same name.
restore_find_end() {
    local found start last more latest
    ferrite_need_tool python3 python3
    start=$(backup_noted "$RESTORE_LAST" binlog_position)
    found=$(python3 "$FERRITE_ROOT/scripts/binlog_end.py" "$1" "$start" "${RESTORE_FILES[@]}") || ferrite_die "${@:2}"
    read -r last found RESTORE_APPLIED more latest <<<"$found"
    RESTORE_FILES=("${RESTORE_FILES[@]:0:last+1}")
    RESTORE_RANGE=("--start-position=$start" "--stop-position=$found")
    [[ $RESTORE_APPLIED != - ]] || RESTORE_APPLIED=
    ((more > 0)) || return 0
    RESTORE_LEFT_OUT="$more later transactions of the binary log have times before $RESTORE_UNTIL and are left out; --until $latest applies them, too"
    ferrite_warn "$RESTORE_LEFT_OUT"
}

restore_say_applied() {
    if [[ -n $RESTORE_APPLIED ]]; then
        printf 'The last transaction applied from the binary log is %s.\n' "$RESTORE_APPLIED"
    else
        printf 'No transaction of the binary log is before %s: none was applied.\n' "$RESTORE_UNTIL"
    fi
    [[ -z $RESTORE_LEFT_OUT ]] || ferrite_warn "$RESTORE_LEFT_OUT"
}

restore_dir() {
    instance_defaults
    DIR=$RESTORE_INTO
    instance_paths
    account_choose "$DIR" "$ASKED_ACCOUNT"
    backup_take_dir restore "$DIR"
    # Closed while it is filled: what is copied brings rights of its own with it.
    chmod 700 -- "$DIR"
}

# An interrupt does not end this: the server is down before the directory is called unfinished.
restore_cut_off() {
    trap '' INT TERM HUP
    restore_server_down || ferrite_warn "a server may still run on $DIR"
    [[ ! -f $DIR/$INSTANCE_NOTE || -n ${RESTORE_UNTIL:-} ]] || return 0
    ferrite_warn "the restore was cut off: $DIR is incomplete and can be removed"
    rm -f -- "$DIR/$INSTANCE_NOTE"
}

restore_server_files() {
    ferrite_progress "copying the server's files" cp -r --preserve=timestamps -- "$RESTORE_LAST/server/." "$DIR/" ||
        ferrite_die "cannot copy $RESTORE_LAST/server to $DIR"
    FERRITE_LAST_LINES=12 ferrite_progress "preparing them with mariadb-backup" restore_prepare ||
        ferrite_die "mariadb-backup --prepare failed on $DIR" "its last words are above"
    # No directory: a database may have such a name.
    find "$DIR" -maxdepth 1 -type f \( -name 'xtrabackup_*' -o -name 'mariadb_backup_*' -o -name backup-my.cnf \) -delete
}

# The options of the server that InnoDB's files depend on (its page size, the names of its files) are in a file among them.
restore_prepare() { ferrite_with_libs "$FERRITE_MARIADB_BACKUP" --defaults-file="$DIR/backup-my.cnf" --prepare --target-dir="$DIR"; }

restore_ferrite() {
    "$FERRITE_BACKUP" restore "${RESTORE_FROM[@]/%//ferrite}" --into "$DIR" "${RESTORE_ENCRYPTION[@]}" ||
        ferrite_die "Ferrite's data was not restored" "the reason is above; $DIR can be removed"
    restore_verified "the restored database" "has faults" "and $DIR can be removed" \
        "checking the restored database" "$FERRITE_CHECK" --quiet "$DIR"
}

# restore_verified WHAT FAULTY REST TITLE COMMAND...: goes on if the command finds no faults. It ends with 1 if it finds some;
# with anything else (2: it cannot run; 137: the system was short of memory) it has said nothing of WHAT.
restore_verified() {
    local what=$1 faulty=$2 rest=$3 title=$4 status=0
    shift 4
    ferrite_progress "$title" "$@" || status=$?
    case $status in
        0) ;;
        1) ferrite_die "$what $faulty, $rest" "file and reason are above" ;;
        137) ferrite_die "$what could not be verified, $rest" \
            "the program that does it was killed (code 137), as the system does when memory is short: make some free, and try again" ;;
        *) ferrite_die "$what could not be verified, $rest" "the program that does it ended with code $status; the reason is above" ;;
    esac
}

# From here on it is a directory of ./ferrite, ready unless the binary log is to be applied.
restore_note() {
    [[ ! -f $RESTORE_LAST/ferrite.password ]] || install -m 600 -- "$RESTORE_LAST/ferrite.password" "$DIR/ferrite.password"
    ((EUID != 0)) || chown -R --no-dereference -- "$(id -u "$ACCOUNT"):$(id -g "$ACCOUNT")" "$DIR"
    instance_as chmod 700 "$DIR"
    ACCESS=
    [[ ! -f $RESTORE_LAST/ferrite.password ]] || ACCESS=1
    sync -f -- "$DIR"
    local state=ready
    [[ -z $RESTORE_APPLIED ]] || state=replaying
    if restore_is_server; then
        # No note but for the time in which the log is applied; `up` makes no users where the note says that there are some.
        [[ $state == replaying ]] || return 0
        ACCESS=$ACCESS_VERSION
    fi
    instance_note "$state"
}

# The binary log from the backup's position to the moment asked for, on a server that nobody else can connect to. An event
# of rows is one statement, larger than the packets of the connection that it came from. The options that the user gives win over
# those of `up`, as the engine of a table whose statement names none, and these here win over both.
restore_replay() {
    ferrite_say "applying the binary log up to $RESTORE_UNTIL (${#RESTORE_FILES[@]} files)"
    # A path in DIR may be longer than that of a socket can be.
    RESTORE_SERVER=$(TMPDIR=/tmp mktemp -d)
    # `up` takes the lock. The note keeps others out.
    exec {BACKUP_LOCK}<&-
    ! restore_is_server || restore_server_login
    FERRITE_REPLAYING=$DIR "$FERRITE_LAUNCHER" up --dir "$DIR" --port "$(restore_free_port)" --socket "$RESTORE_SERVER/ferrite.sock" \
        -- ${ASKED_ACCOUNT:+"--user=$ASKED_ACCOUNT"} "${RESTORE_OPTIONS[@]}" "${SERVER_OPTIONS[@]}" --skip-networking --skip-log-bin --skip-slave-start --event-scheduler=OFF --max-allowed-packet=1G >/dev/null ||
        ferrite_die "the restored server does not start" "see $DIR/ferrite.err"
    local status=0
    ferrite_with_libs "$FERRITE_SERVER_PREFIX/bin/mariadb-binlog" --no-defaults "${RESTORE_RANGE[@]}" "${RESTORE_FILES[@]}" |
        "$FERRITE_LAUNCHER" sql --dir "$DIR" "${RESTORE_LOGIN[@]}" --binary-mode --max-allowed-packet=1G || status=1
    ! restore_is_server || restore_server_logout || status=1
    restore_server_down || status=1
    ((status == 0)) || ferrite_die "the binary log was not applied to its end" "the reason is above; $DIR can be removed"
    ACCESS=$(instance_noted access)
    sync -f -- "$DIR"
    if restore_is_server; then
        restore_server_tidy
    else
        instance_note ready
    fi
}

restore_server_down() {
    [[ -n $RESTORE_SERVER ]] || return 0
    "$FERRITE_LAUNCHER" down --dir "$DIR" >/dev/null || return 1
    rm -rf -- "$RESTORE_SERVER"
    RESTORE_SERVER=
}

# Sets RESTORE_FILES: from the one in which the backup ends on, by number: behind bin.999999 comes bin.1000000. A file that
# is missing in between would be transactions that are.
restore_binlog_files() {
    local base number
    base=$(backup_noted "$RESTORE_LAST" binlog_file)
    local next=$((10#${base##*.}))
    base=${base%.*}
    while read -r number; do
        ((10#$number >= next)) || continue
        ((10#$number == next)) || ferrite_die "$RESTORE_BINLOGS has $base.$number, but not the file before it (number $next)" \
            "copy all files of the binary log there, from the one named in $RESTORE_LAST/$BACKUP_INFO on"
        RESTORE_FILES+=("$RESTORE_BINLOGS/$base.$number")
        next=$((next + 1))
    done < <(find "$RESTORE_BINLOGS" -maxdepth 1 -name '*.[0-9]*' -printf '%f\n' | awk -v base="$base." \
        'index($0, base) == 1 && (n = substr($0, length(base) + 1)) ~ /^[0-9]+$/ { print n }' | sort -n)
    ((${#RESTORE_FILES[@]} > 0)) || ferrite_die "cannot list the binary log in $RESTORE_BINLOGS"
}

restore_free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])' 2>/dev/null || echo 33999; }
