# shellcheck shell=bash
# `./ferrite rewind`: the Ferrite tables of an instance go back to a snapshot, or forth again.
#
# 1. What a rewind would break is found first: tables of other engines, replication, the binary log.
# 2. The server is shut down. ferrite-rewind keeps the present as a snapshot, and goes back in one step; if it is
#    killed, the tables are either what they were or what they were to be, and the next start finishes it.
# 3. If the server ran before, it is started again. One that is no instance is stopped and started by its owner.
#
# Rights: the server's account can write in the directory, so that what a note in it says is not to be trusted by root. The machine's own
# server is no instance, whatever its directory has; a noted socket is one that `up` has made.
# shellcheck source=scripts/snapshot.sh
source "$FERRITE_ROOT/scripts/snapshot.sh"

# REWIND_OWN: the machine's own server, or another one that is no instance; REWIND_WORDS: what the option files have for the former's start.
REWIND_FORCE='' REWIND_BINLOG='' REWIND_UP=() REWIND_OWN='' REWIND_WORDS=()

cmd_rewind() {
    instance_defaults
    rewind_options "$@"
    local ran=
    rewind_find
    rewind_tool
    rewind_check "$ran"
    [[ -z $ran ]] || rewind_stop
    rewind_go || {
        local status=$?
        [[ -z $ran ]] || rewind_start
        ferrite_die "the rewind failed with code $status" "the reason is above; nothing has changed, unless it says so"
    }
    [[ -z $ran ]] || rewind_start
    [[ -z $REWIND_OWN ]] || ferrite_say "now start the server again"
    rewind_binlog "$ran"
}

# Sets `ran`: the server runs, and is shut down for it.
rewind_find() {
    [[ -n $DIR ]] || {
        DIR=$(server_default_dir)
        REWIND_OWN=1
    }
    instance_paths
    instance_check_note
    instance_exists || [[ ! -d $DIR/#ferrite ]] || REWIND_OWN=1
    if [[ -n $REWIND_OWN ]]; then
        server_account
        [[ $DIR != "$(realpath -m -- "$(server_default_dir)")" ]] || mapfile -t REWIND_WORDS < <(server_defaults)
        return
    fi
    instance_choose_server
    instance_exists || ferrite_die "$DIR is not the data directory of an instance" "it was not made by ./ferrite up, and has no Ferrite tables"
    [[ -d $DIR/#ferrite ]] || ferrite_die "$DIR has no Ferrite tables"
    ferrite_ensure_server
    ! instance_running || ran=1
    instance_recall
    account_choose "$DIR"
    rewind_check_socket
}

# The server is started with the socket that the note has, and root makes the link: only where one to this very socket is, in a directory
# in which the server's account cannot make it.
rewind_check_socket() {
    [[ $SOCKET != "$DIR/ferrite.sock" && ${#AS[@]} -gt 0 ]] || return 0
    [[ $(readlink -- "$SOCKET") == "$DIR/ferrite.sock" ]] && ! server_could_change "$(dirname -- "$SOCKET")" && return
    ferrite_warn "$DIR/$INSTANCE_NOTE has the socket $SOCKET, which is no link to this server's that only root could make: it gets $DIR/ferrite.sock"
    SOCKET=$DIR/ferrite.sock
}

rewind_options() {
    while (($# > 0)); do
        case $1 in
            --dir | --binlog)
                ferrite_need_value "$@"
                rewind_set "$1" "$2"
                shift
                ;;
            --dir=* | --binlog=*) rewind_set "${1%%=*}" "${1#*=}" ;;
            --force) REWIND_FORCE=1 ;;
            --)
                shift
                REWIND_UP=(-- "$@")
                break
                ;;
            -*) ferrite_die "rewind: unknown option '$1'" "see ./ferrite help" ;;
            *)
                [[ -z $SNAPSHOT_NAME ]] || ferrite_die "rewind: a second name '$1'" "see ./ferrite help"
                SNAPSHOT_NAME=$1
                ;;
        esac
        shift
    done
    snapshot_check_name "$SNAPSHOT_NAME"
    [[ -z $REWIND_BINLOG || $REWIND_BINLOG == reset || $REWIND_BINLOG == continue ]] ||
        ferrite_die "rewind: --binlog is reset or continue, not '$REWIND_BINLOG'"
}

rewind_set() {
    case $1 in
        --dir) DIR=$2 ;;
        --binlog) REWIND_BINLOG=$2 ;;
    esac
}

rewind_tool() {
    ferrite_ensure_tools ferrite-rewind --bin ferrite-rewind
    FERRITE_REWIND=$FERRITE_TOOLS_BIN/ferrite-rewind
    # The server is shut down for it: it must be able to do its work.
    instance_as "$FERRITE_REWIND" --help >/dev/null 2>&1 || ferrite_die "the account $ACCOUNT cannot run $FERRITE_REWIND"
    [[ -n ${FERRITE_ENCRYPTION_KEYS:-} ]] || return 0
    FERRITE_ENCRYPTION_KEYS=$(realpath -m -- "$FERRITE_ENCRYPTION_KEYS")
    account_reaches "$FERRITE_ENCRYPTION_KEYS" ||
        ferrite_die "the server's account $ACCOUNT cannot read $FERRITE_ENCRYPTION_KEYS (FERRITE_ENCRYPTION_KEYS)" \
            "put it where that account can read it"
}

# rewind_check RAN: nothing is changed before this has passed.
rewind_check() {
    local others replica logs
    [[ -f $DIR/#ferrite/snapshot.$SNAPSHOT_NAME.manifest ]] ||
        ferrite_die "there is no snapshot $SNAPSHOT_NAME" "see: $(if [[ -z $REWIND_OWN ]]; then instance_command 'snapshot --list'; else echo "ferrite-rewind --list $DIR"; fi)"
    others=$(rewind_others) || exit 1
    if [[ -n $others && -z $REWIND_FORCE ]]; then
        ferrite_die "tables of other engines exist and WOULD NOT GO BACK: ${others//$'\n'/, }" \
            "only Ferrite tables are rewound; with --force these stay as they are now"
    fi
    replica=$(rewind_is_replica "$1") || ferrite_die "cannot find out whether this server is a replica"
    if [[ -n $replica && -z $REWIND_FORCE ]]; then
        ferrite_die "this server is a replica: what it has replicated since would be missing, and not come again" \
            "with --force its replication position stays as it is now"
    fi
    logs=$(rewind_has_binlog "$1") || ferrite_die "cannot find out whether there is a binary log"
    if [[ -n $logs && -z $REWIND_BINLOG ]]; then
        ferrite_die "there is a binary log: after a rewind its events are not what the tables have" \
            "--binlog reset: it is emptied (RESET MASTER); replicas and point-in-time restores begin anew" \
            "--binlog continue: it goes on behind them; replicas keep what this server loses" \
            "see docs/operating/snapshots.md"
    fi
}

# Tables of other engines in users' databases, the first few.
rewind_others() {
    local all
    ferrite_need_tool python3 python3
    all=$(python3 "$FERRITE_ROOT/scripts/other_engines.py" "$DIR") ||
        ferrite_die "cannot find out which tables of other engines exist" "the reason is above"
    head -n 5 <<<"$all"
}

# rewind_is_replica RAN: a stopped one by the files of its connections; that of an unnamed one may be all there is.
rewind_is_replica() {
    if [[ -n $1 ]]; then
        instance_query "SHOW ALL SLAVES STATUS"
    else
        local master
        find "$DIR" -maxdepth 1 -type f -size +0 \( -name 'master*.info' -o -name 'multi-master*.info' \) -printf '%f\n'
        master=$(rewind_option --master-info-file)
        [[ -z $master ]] || (cd -- "$DIR" && [[ ! -s $master ]] || printf '%s\n' "$master")
    fi
}

# rewind_has_binlog RAN: of a stopped server, an index in DIR, or what a snapshot has noted: the log may be elsewhere.
rewind_has_binlog() {
    if [[ -n $1 ]]; then
        instance_query "SELECT 'yes' FROM DUAL WHERE @@log_bin"
    else
        find "$DIR" -maxdepth 1 -name '*.index' ! -name '*relay*' -printf 'yes\n' -quit
        find "$DIR/#ferrite" -maxdepth 1 -name 'snapshot.*.manifest' -exec grep -laqE '^binlog-file .' {} \; -printf 'yes\n' -quit
    fi
}

rewind_go() {
    local log
    log=$(rewind_option --log-ddl-recovery)
    instance_as "$FERRITE_REWIND" ${log:+"--ddl-log=$log"} "$DIR" "$SNAPSHOT_NAME"
}

# rewind_option NAME: its value, if the words for the server's start have one; the last one counts. The server's log of DDL may be anywhere;
# ferrite-rewind finds those in DIR.
rewind_option() {
    local word name='' value=''
    for word in "${REWIND_WORDS[@]}" "${REWIND_UP[@]}"; do
        [[ $name != "$1" ]] || value=$word
        name=${word%%=*}
        name=${name//_/-}
        [[ $word != *=* ]] || {
            [[ $name != "$1" ]] || value=${word#*=}
            name=
        }
    done
    printf '%s' "$value"
}

# A server that ended otherwise than it should runs again, on the tables that it had.
rewind_stop() {
    "$FERRITE_LAUNCHER" down --dir "$DIR" >/dev/null && return
    instance_running || rewind_start
    ferrite_die "the server was not shut down cleanly, and nothing was rewound" "the reason is above"
}

rewind_start() {
    "$FERRITE_LAUNCHER" up --dir "$DIR" --port "$PORT" --socket "$SOCKET" "${REWIND_UP[@]}" ||
        ferrite_die "the server does not start" "see $DIR/ferrite.err"
}

rewind_binlog() {
    [[ $REWIND_BINLOG == reset ]] || return 0
    if [[ -n $1 ]]; then
        instance_running || ferrite_die "the tables are back, but the server does not run" "run RESET MASTER when it does"
        instance_query "RESET MASTER" || ferrite_die "the tables are back, but RESET MASTER failed" "run it yourself"
    else
        ferrite_warn "the server does not run: run RESET MASTER when it does"
    fi
}
