# shellcheck shell=bash
# One private server: its directory, its instance file, and whether it runs.
#
# The note DIR/ferrite.instance marks a directory as made by `./ferrite up`; no other directory is ever opened. Nothing but
# the word `creating` in it allows what is in DIR to be removed: a note that is empty or cannot be read says nothing. With
# the word `replaying` it is amid a restore to a point in time, whose own server alone is started on it.
#
# DIR is closed to all accounts but the server's (0700), and in it are the socket (the path that people know is a link
# to it), the password, the log, the place for LOAD DATA and INTO OUTFILE (.files) and for temporary files (.tmp).
# shellcheck source=scripts/account.sh
source "$FERRITE_ROOT/scripts/account.sh"

INSTANCE_NOTE=ferrite.instance
ACCESS=
# An option has named the directory.
INSTANCE_ASKED=''
# The words that a client begins with; and, of a server that is no instance (server.sh), where its programs are.
DEFAULTS=(--no-defaults) SERVER_BIN=''

# The first series has the plain names; each other one has its own, so that both can run at a time. The package has none.
instance_defaults() {
    local suffix=
    if ferrite_is_installed; then
        DIR='' SOCKET='' PORT=3307
        return
    fi
    DIR=$FERRITE_ROOT/var/data
    PORT=3307
    if ferrite_server_is_other; then
        suffix=-$FERRITE_SERVER
        PORT=3308
    fi
    DIR+=$suffix
    SOCKET=$FERRITE_ROOT/var/ferrite$suffix.sock
}

# instance_choose_server: a directory stays with the series that made it. A series asked for must be that one.
instance_choose_server() {
    local noted
    noted=$(instance_noted server)
    # One that an older ./ferrite made has no word about it.
    ! instance_exists || noted=${noted:-${FERRITE_SERIES[0]%% *}}
    ferrite_choose_server "$noted"
    if [[ -n $noted && $noted != "$FERRITE_SERVER" ]]; then
        ferrite_die "$DIR was made for MariaDB $noted and MariaDB $FERRITE_SERVER is asked for" \
            "leave --server and FERRITE_SERVER out, or choose another directory with --dir;" \
            "to move the data: mariadb-dump on the one, ./ferrite sql on the other"
    fi
}

# instance_take_dir WORDS...: for sql, down and status. Takes --dir out of the words, leaves the others in REST.
instance_take_dir() {
    REST=()
    # shellcheck disable=SC2034 # read by server.sh
    while (($# > 0)); do
        case $1 in
            --dir)
                ferrite_need_value "$@"
                DIR=$2 INSTANCE_ASKED=1
                shift
                ;;
            --dir=*)
                ferrite_need_value --dir "${1#--dir=}"
                DIR=${1#--dir=} INSTANCE_ASKED=1
                ;;
            *)
                REST+=("$@")
                break
                ;;
        esac
        shift
    done
    instance_paths
    instance_choose_server
}

instance_paths() {
    [[ -n $DIR ]] || ferrite_die "name the directory with --dir" \
        "this machine's own server is started and stopped as always: systemctl start mariadb, systemctl stop mariadb"
    DIR=$(realpath -m -- "$DIR")
    SOCKET=${SOCKET:-$DIR/ferrite.sock}
    # The name itself is not followed: it is a link to the socket in DIR.
    SOCKET=$(realpath -m -- "$(dirname -- "$SOCKET")")/$(basename -- "$SOCKET")
    PID_FILE=$DIR/ferrite.pid
    # shellcheck disable=SC2034 # read by the scripts that source this one
    ERROR_LOG=$DIR/ferrite.err
    if [[ -d $DIR && ! -x $DIR ]]; then
        ferrite_die "$DIR belongs to $(stat -c %U -- "$DIR") and is closed to $(account_me)" "give another with --dir"
    fi
}

# instance_check_options: SERVER_OPTIONS has nothing that ./ferrite says itself.
instance_check_options() {
    local option
    for option in "${SERVER_OPTIONS[@]}"; do
        case ${option//_/-} in
            --datadir | --datadir=* | --socket | --socket=* | --port | --port=* | --pid-file* | --log-error | --log-error=*)
                ferrite_die "${option%%=*} is set by ./ferrite and cannot be given after --" \
                    "use --dir, --port and --socket before the --"
                ;;
        esac
    done
}

instance_note() {
    printf 'state=%s\npid=%s\nport=%s\nsocket=%s\nplugin=%s\naccess=%s\nserver=%s\n' \
        "$1" "${2:-}" "$PORT" "$SOCKET" "${3:-}" "$ACCESS" "$FERRITE_SERVER" | instance_write "$DIR/$INSTANCE_NOTE"
}

# What is done in DIR is done with the rights of the server's account.
instance_as() { (cd / && account_as "$@"); }

# instance_write FILE: from stdin, for the account alone. It is the old file or the whole new one, after a power loss too;
# nothing on stdin is the mark of a writer that died.
instance_write() {
    # shellcheck disable=SC2016
    instance_as sh -c 'umask 077 && cat >"$1.new" && test -s "$1.new" && sync -- "$1.new" && mv -f -- "$1.new" "$1" &&
        sync -- "$(dirname -- "$1")"' _ "$1"
}

instance_noted() { sed -n "s/^$1=//p" "$DIR/$INSTANCE_NOTE" 2>/dev/null || true; }

instance_exists() { [[ -f $DIR/$INSTANCE_NOTE ]]; }

# instance_made: what is in DIR is whole, or a restore's own `up` (FERRITE_REPLAYING) makes it so.
instance_made() {
    local state
    state=$(instance_noted state)
    [[ $state == ready || ($state == replaying && ${FERRITE_REPLAYING:-} == "$DIR") ]]
}

# instance_check_note: dies if there is a note that does not say what DIR is. Data and `creating` do not go together.
instance_check_note() {
    local state
    instance_exists || return 0
    ! instance_made || return 0
    state=$(instance_noted state)
    [[ $state != replaying ]] || ferrite_die "a restore was cut off, or is not done yet: $DIR is at some moment between the backup and" \
        "the one that was asked for. Remove it (after ./ferrite down --dir $(printf '%q' "$DIR"), if a server still runs), and restore again"
    [[ $state != creating || -e $DIR/#ferrite ]] || return 0
    ferrite_die "the note $DIR/$INSTANCE_NOTE is damaged (its state is '$state'); nothing was changed" \
        "look at what is in $DIR. If it is an instance with your data, write the note anew, then run this again:" \
        "printf 'state=ready\\nserver=${FERRITE_SERVER:-${FERRITE_SERIES[0]%% *}}\\naccess=1\\n' >$(printf '%q' "$DIR/$INSTANCE_NOTE")" \
        "(server is the MariaDB series that it was made with). If nothing in it is of use, remove the directory"
}

# Sets PID when a server runs on DIR: the process is alive and was started with this very directory.
instance_running() {
    local file
    for file in "$PID_FILE" ""; do
        PID=$(if [[ -n $file ]]; then cat "$file" 2>/dev/null; else instance_noted pid; fi) || true
        [[ $PID =~ ^[0-9]+$ && -r /proc/$PID/cmdline ]] || continue
        if tr '\0' '\n' <"/proc/$PID/cmdline" 2>/dev/null | grep -qxF -- "--datadir=$DIR"; then
            return
        fi
    done
    PID=
    return 1
}

# Takes port and socket from the note of a running server. One that was written anew by hand says neither: the port is in
# the server's command line, and its socket is in DIR.
instance_recall() {
    local port socket
    port=$(instance_noted port)
    [[ -n $port || -z ${PID:-} ]] || port=$(tr '\0' '\n' <"/proc/$PID/cmdline" 2>/dev/null | sed -n 's/^--port=//p' | tail -n 1)
    [[ -z $port ]] || PORT=$port
    socket=$(instance_noted socket)
    SOCKET=${socket:-$DIR/ferrite.sock}
}

# instance_client PROGRAM ARGUMENTS...: a client program, talking to this server and to no other. The server asks the
# kernel whose process it is; an account that the system has no name for shows the password instead.
instance_client() {
    local program=$1
    shift
    instance_login
    ferrite_with_libs "${SERVER_BIN:-$FERRITE_SERVER_PREFIX/bin}/$program" "${DEFAULTS[@]}" "${LOGIN[@]}" "$@"
}

# Sets LOGIN, the options that let the owner and root in.
instance_login() {
    local me
    [[ -z $SERVER_BIN ]] || return 0
    me=$(account_me)
    LOGIN=("--user=$me" "--socket=$SOCKET")
    # A server that an older ./ferrite started and that still runs knows only root.
    [[ -n ${ACCESS_NEXT:-$(instance_noted access)} ]] || LOGIN=(--user=root "--socket=$SOCKET")
    [[ $me =~ ^[0-9]+$ ]] || return 0
    export MYSQL_PWD
    MYSQL_PWD=$(cat "$DIR/ferrite.password" 2>/dev/null || true)
    LOGIN=(--protocol=tcp --host=127.0.0.1 "--port=$PORT" --user=ferrite)
}

instance_query() { instance_client mariadb --batch --skip-column-names -e "$1" 2>/dev/null; }

# The command line of ./ferrite WORD for this directory, as a person would type it.
instance_command() {
    local words="./ferrite $1"
    if [[ $DIR == "$(realpath -m -- "$FERRITE_ROOT/var/data-$FERRITE_SERVER")" ]]; then
        words+=" --server $FERRITE_SERVER"
    elif [[ $DIR != "$(realpath -m -- "$FERRITE_ROOT/var/data")" ]]; then
        words+=" --dir $(printf '%q' "$DIR")"
    fi
    printf '%s' "$words"
}
