# shellcheck shell=bash
# `./ferrite up`: build, make the data directory when it is new, start the server, wait until it answers.
# shellcheck source=scripts/instance.sh
source "$FERRITE_ROOT/scripts/instance.sh"

SERVER_OPTIONS=()

cmd_up() {
    instance_defaults
    up_options "$@"
    instance_paths
    up_check_options
    up_open_dir
    if instance_running; then
        up_already_running
        return
    fi
    up_check_address
    ferrite_build
    up_create_data
    up_start
    up_wait
    up_test_database
    printf 'Ferrite is up (process %s).\n' "$PID"
    up_how_to_connect
}

up_options() {
    while (($# > 0)); do
        case $1 in
            --dir | --port | --socket)
                ferrite_need_value "$@"
                up_set "$1" "$2"
                shift
                ;;
            --dir=* | --port=* | --socket=*)
                ferrite_need_value "${1%%=*}" "${1#*=}"
                up_set "${1%%=*}" "${1#*=}"
                ;;
            --)
                shift
                SERVER_OPTIONS=("$@")
                break
                ;;
            *) ferrite_die "up does not know '$1'" "options for the server go after --, see ./ferrite help" ;;
        esac
        shift
    done
}

up_set() {
    case $1 in
        --dir) DIR=$2 ;;
        --port) PORT=$2 ;;
        --socket) SOCKET=$2 ;;
    esac
}

up_check_options() {
    if [[ ! $PORT =~ ^[0-9]{1,5}$ ]] || ((10#$PORT < 1 || 10#$PORT > 65535)); then
        ferrite_die "--port $PORT is not a port" "give a number from 1 to 65535"
    fi
    PORT=$((10#$PORT))
    local option
    for option in "${SERVER_OPTIONS[@]}"; do
        case ${option//_/-} in
            --datadir | --datadir=* | --socket | --socket=* | --port | --port=* | --pid-file* | --log-error | --log-error=*)
                ferrite_die "${option%%=*} is set by ./ferrite and cannot be given after --" \
                    "there are --dir, --port and --socket before the --"
                ;;
        esac
    done
    # The kernel's limit on the path of a socket is 107 bytes.
    if (($(printf '%s' "$SOCKET" | wc -c) > 107)); then
        ferrite_die "the socket's path is longer than 107 bytes: $SOCKET" "give a shorter one with --socket"
    fi
}

# The directory exists and is ours, empty, or can be made; and no other `up` is at work on it.
up_open_dir() {
    [[ ! -e $DIR || -d $DIR ]] || ferrite_die "$DIR is not a directory" "give another with --dir"
    mkdir -p -- "$DIR" 2>/dev/null || ferrite_die "cannot create $DIR" "check the rights on $(dirname -- "$DIR") or give another with --dir"
    [[ -r $DIR && -w $DIR && -x $DIR ]] || ferrite_die "$DIR is not writable for $(id -un)" "change its owner or give another with --dir"
    if ! instance_exists && [[ -n $(ls -A -- "$DIR") ]]; then
        if [[ -d $DIR/mysql ]]; then
            ferrite_die "$DIR is the data directory of another server" "Ferrite opens only directories that ./ferrite up made; give another with --dir"
        fi
        ferrite_die "$DIR is not empty and not a data directory of Ferrite's" "give a new or empty directory with --dir"
    fi
    exec {UP_LOCK}<"$DIR"
    flock -n "$UP_LOCK" || ferrite_die "another ./ferrite up is at work on $DIR" "wait for it to end"
}

up_already_running() {
    local asked_port=$PORT asked_socket=$SOCKET built
    ferrite_ensure_server
    instance_recall
    printf 'Ferrite is already running (process %s).\n' "$PID"
    up_how_to_connect
    if [[ $asked_port != "$PORT" || $asked_socket != "$SOCKET" ]] || ((${#SERVER_OPTIONS[@]} > 0)); then
        ferrite_say "it keeps the port, socket and options it was started with; to change them: $(instance_command down), then up"
    fi
    built=$(stat -c %Y "$(ferrite_plugin_path)" 2>/dev/null || true)
    if [[ -n $built && $built != "$(instance_noted plugin)" ]]; then
        ferrite_say "the plugin was built anew since it started; to load it: $(instance_command down), then up"
    fi
}

up_check_address() {
    if (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null; then
        ferrite_die "port $PORT is in use by another program" "give another with --port"
    fi
    local home
    home=$(dirname -- "$SOCKET")
    mkdir -p -- "$home" 2>/dev/null || true
    [[ -w $home ]] || ferrite_die "cannot write to $home, the socket's directory" "give another path with --socket"
    [[ -e $SOCKET ]] || return 0
    [[ -S $SOCKET ]] || ferrite_die "$SOCKET exists and is not a socket" "give another path with --socket"
    if grep -qF -- " $SOCKET" /proc/net/unix; then
        ferrite_die "the socket $SOCKET is in use by another server" "give another path with --socket"
    fi
}

# A directory whose making was cut short is made again: its note says so.
up_create_data() {
    [[ $(instance_noted state) != ready ]] || return 0
    find "$DIR" -mindepth 1 -delete
    instance_note creating
    local user=()
    ((EUID != 0)) || user=(--user=root)
    # --force: a machine that cannot look up its own name gets its accounts by address.
    ferrite_progress "creating the data directory $DIR" ferrite_with_libs \
        "$FERRITE_SERVER_PREFIX/bin/mariadb-install-db" --no-defaults --basedir="$FERRITE_SERVER_PREFIX" \
        --datadir="$DIR" --force --auth-root-authentication-method=normal --skip-test-db --skip-name-resolve \
        --character-set-server=utf8mb4 "${user[@]}" ||
        ferrite_die "cannot create the system tables in $DIR" "the messages are above"
    instance_note ready
}

up_start() {
    local plugin
    plugin=$(stat -c %Y "$HA_FERRITE_SO")
    [[ ! -e $ERROR_LOG ]] || mv -f -- "$ERROR_LOG" "$ERROR_LOG.old"
    rm -f -- "$PID_FILE"
    ferrite_say "starting the server on $DIR"
    local command=("$FERRITE_MARIADBD" --no-defaults --basedir="$FERRITE_SERVER_PREFIX" --datadir="$DIR"
        --lc-messages-dir="$FERRITE_SERVER_PREFIX/share/mysql" --character-sets-dir="$FERRITE_SERVER_PREFIX/share/mysql/charsets"
        --plugin-dir="$(ferrite_plugin_dir)" --plugin-maturity=experimental --plugin-load-add=ha_ferrite.so
        --default-storage-engine=FERRITE --character-set-server=utf8mb4
        --socket="$SOCKET" --port="$PORT" --bind-address=127.0.0.1
        --pid-file="$PID_FILE" --log-error="$ERROR_LOG")
    ((EUID != 0)) || command+=(--user=root)
    command+=("${SERVER_OPTIONS[@]}")
    LD_LIBRARY_PATH=$FERRITE_SERVER_LIBS${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
        setsid nohup "${command[@]}" </dev/null >>"$ERROR_LOG" 2>&1 {UP_LOCK}<&- &
    PID=$!
    instance_note ready "$PID" "$plugin"
}

up_wait() {
    local ticks=0
    until instance_client mariadb-admin --silent --connect-timeout=5 ping >/dev/null 2>&1; do
        kill -0 "$PID" 2>/dev/null || up_died
        sleep 0.2
        ticks=$((ticks + 1))
        ((ticks % 25 != 0)) || ferrite_say "  ... not answering yet; its log says: $(tail -n 1 "$ERROR_LOG" | cut -c 1-120)"
    done
}

up_died() {
    ferrite_warn "the end of $ERROR_LOG:"
    tail -n 25 "$ERROR_LOG" | sed 's/^/    /' >&2
    ferrite_die "the server did not start" "$(up_advice)"
}

up_advice() {
    if grep -qE 'unknown (option|variable)' "$ERROR_LOG"; then
        echo "an option after -- is wrong: the log above names it"
    elif grep -qE "Can't start server: Bind on" "$ERROR_LOG"; then
        echo "the port or the socket is in use: give others with --port or --socket"
    else
        echo "the reason is in the log above"
    fi
}

up_test_database() {
    instance_query "CREATE DATABASE IF NOT EXISTS test" >/dev/null || true
}

up_how_to_connect() {
    cat <<TEXT
Connect with: $(instance_command sql)
  or any client: user root, no password, socket $SOCKET
  or:            host 127.0.0.1, port $PORT
Data: $DIR
Log:  $ERROR_LOG
Stop with:    $(instance_command down)
TEXT
}
