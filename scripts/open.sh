# shellcheck shell=bash
# `./ferrite open`: a second server, on which the Ferrite tables are those of a snapshot, to be read. The instance may run.
#
# It has a data directory of its own, made anew by each open: in it are the snapshot's lists and log, and what the server
# writes. Pages are read from the instance's files. As long as the server runs, the snapshot cannot be dropped.
# The instance may as well be another server's data directory.
# shellcheck source=scripts/snapshot.sh
source "$FERRITE_ROOT/scripts/snapshot.sh"

OPEN_PORT='' OPEN_AT='' OPEN_SOCKET='' OPEN_UP=()

cmd_open() {
    instance_defaults
    open_options "$@"
    [[ -n $DIR ]] || DIR=$(server_default_dir)
    instance_paths
    instance_choose_server
    instance_exists || [[ -d $DIR/#ferrite ]] ||
        ferrite_die "$DIR is not the data directory of an instance" "it was not made by ./ferrite up, and has no Ferrite tables"
    [[ -f $DIR/#ferrite/snapshot.$SNAPSHOT_NAME.manifest ]] ||
        ferrite_die "there is no snapshot $SNAPSHOT_NAME" "see: $(instance_command 'snapshot --list')"
    OPEN_AT=$(realpath -m -- "${OPEN_AT:-$DIR-open-$SNAPSHOT_NAME}")
    OPEN_SOCKET=${OPEN_SOCKET:-$OPEN_AT/ferrite.sock}
    open_empty_dir
    local account=()
    ((EUID != 0)) || account=("--user=$(stat -c %U -- "$DIR")")
    "$FERRITE_LAUNCHER" up --server "$FERRITE_SERVER" --dir "$OPEN_AT" --port "$OPEN_PORT" --socket "$OPEN_SOCKET" -- \
        --ferrite=FORCE "--ferrite-open-snapshot=$DIR:$SNAPSHOT_NAME" --read-only=1 "${account[@]}" "${OPEN_UP[@]}" || {
        open_remove || true
        ferrite_die "snapshot $SNAPSHOT_NAME was not opened" "the reason is above"
    }
    printf 'Snapshot %s is open; its tables can only be read. When the server is stopped, %s is of no more use.\n' \
        "$SNAPSHOT_NAME" "$OPEN_AT"
}

# What an earlier open has left is removed; anything else is not ours.
open_empty_dir() {
    if [[ -e $OPEN_AT/#ferrite/opened-snapshot ]]; then
        open_remove ||
            ferrite_die "a server runs on $OPEN_AT" "stop it with: ./ferrite down --dir $(printf '%q' "$OPEN_AT")"
    fi
    [[ ! -e $OPEN_AT ]] || [[ -d $OPEN_AT && -z $(ls -A -- "$OPEN_AT") ]] ||
        ferrite_die "$OPEN_AT is not empty" "give another directory with --at"
}

# Fails if a server runs on it, or is about to: ./ferrite up has the directory locked.
open_remove() {
    local fd status=0
    [[ -d $OPEN_AT ]] || return 0
    exec {fd}<"$OPEN_AT" || return 1
    if ! flock -n "$fd" || (DIR=$OPEN_AT && PID_FILE=$DIR/ferrite.pid && instance_running); then
        status=1
    else
        rm -rf -- "$OPEN_AT"
    fi
    exec {fd}<&-
    return "$status"
}

open_options() {
    while (($# > 0)); do
        case $1 in
            --dir | --port | --at | --socket)
                ferrite_need_value "$@"
                open_set "$1" "$2"
                shift
                ;;
            --dir=* | --port=* | --at=* | --socket=*) open_set "${1%%=*}" "${1#*=}" ;;
            --)
                shift
                OPEN_UP=("$@")
                break
                ;;
            -*) ferrite_die "open: unknown option '$1'" "see ./ferrite help" ;;
            *)
                [[ -z $SNAPSHOT_NAME ]] || ferrite_die "open: a second name '$1'" "see ./ferrite help"
                SNAPSHOT_NAME=$1
                ;;
        esac
        shift
    done
    snapshot_check_name "$SNAPSHOT_NAME"
    [[ -n $OPEN_PORT ]] || ferrite_die "open: the second server needs a port of its own" "give one with --port"
}

open_set() {
    case $1 in
        --dir) DIR=$2 ;;
        --port) OPEN_PORT=$2 ;;
        --at) OPEN_AT=$2 ;;
        --socket) OPEN_SOCKET=$2 ;;
    esac
}
