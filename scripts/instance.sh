# shellcheck shell=bash
# One private server: its directory, its note about itself, and whether it lives.
#
# The note DIR/ferrite.instance marks a directory as made by `./ferrite up`; no other directory is ever opened.

INSTANCE_NOTE=ferrite.instance

instance_defaults() {
    DIR=$FERRITE_ROOT/var/data
    PORT=3307
    SOCKET=$FERRITE_ROOT/var/ferrite.sock
}

# instance_take_dir WORDS...: for sql, down and status. Takes --dir out of the words, leaves the others in REST.
instance_take_dir() {
    REST=()
    while (($# > 0)); do
        case $1 in
            --dir)
                ferrite_need_value "$@"
                DIR=$2
                shift
                ;;
            --dir=*)
                ferrite_need_value --dir "${1#--dir=}"
                DIR=${1#--dir=}
                ;;
            *)
                REST+=("$@")
                break
                ;;
        esac
        shift
    done
    instance_paths
}

instance_paths() {
    DIR=$(realpath -m -- "$DIR")
    SOCKET=$(realpath -m -- "$SOCKET")
    PID_FILE=$DIR/ferrite.pid
    # shellcheck disable=SC2034 # read by the rooms that source this one
    ERROR_LOG=$DIR/ferrite.err
}

instance_note() {
    printf 'state=%s\npid=%s\nport=%s\nsocket=%s\nplugin=%s\n' "$1" "${2:-}" "$PORT" "$SOCKET" "${3:-}" >"$DIR/$INSTANCE_NOTE"
}

instance_noted() { sed -n "s/^$1=//p" "$DIR/$INSTANCE_NOTE" 2>/dev/null || true; }

instance_exists() { [[ -f $DIR/$INSTANCE_NOTE ]]; }

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

# Takes port and socket from the note of a running server.
instance_recall() {
    PORT=$(instance_noted port)
    SOCKET=$(instance_noted socket)
}

# instance_client PROGRAM ARGUMENTS...: a client program, talking to this server and to no other.
instance_client() {
    local program=$1
    shift
    ferrite_with_libs "$FERRITE_SERVER_PREFIX/bin/$program" --no-defaults --user=root --socket="$SOCKET" "$@"
}

instance_query() { instance_client mariadb --batch --skip-column-names -e "$1" 2>/dev/null; }

# The command line of ./ferrite WORD for this directory, as a person would type it.
instance_command() {
    local words="./ferrite $1"
    [[ $DIR == "$FERRITE_ROOT/var/data" ]] || words+=" --dir $(printf '%q' "$DIR")"
    printf '%s' "$words"
}
