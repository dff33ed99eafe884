# shellcheck shell=bash
# `./ferrite up`: build, make the data directory when it is new, start the server, wait until it answers.
# shellcheck source=scripts/instance.sh
source "$FERRITE_ROOT/scripts/instance.sh"
# shellcheck source=scripts/access.sh
source "$FERRITE_ROOT/scripts/access.sh"

cmd_up() {
    instance_defaults
    up_options "$@"
    instance_paths
    instance_check_note
    instance_choose_server
    up_check_options
    account_take_asked
    up_open_dir
    if instance_running; then
        up_already_running
        return
    fi
    up_check_address
    up_programs
    up_close_dir
    up_create_data
    access_prepare
    up_start
    up_wait
    access_done
    up_note
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
            *) ferrite_die "up: unknown argument '$1'" "options for the server go after --, see ./ferrite help" ;;
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
    instance_check_options
    # The kernel's limit on the path of a socket is 107 bytes.
    if (($(printf '%s' "$SOCKET" | wc -c) > 107)); then
        ferrite_die "the socket's path is longer than 107 bytes: $SOCKET" "give a shorter one with --socket"
    fi
}

# The directory exists and is ours, is empty, or can be created; and no other `up` uses it.
up_open_dir() {
    [[ ! -e $DIR || -d $DIR ]] || ferrite_die "$DIR is not a directory" "give another with --dir"
    mkdir -p -- "$DIR" 2>/dev/null || ferrite_die "cannot create $DIR" "check the permissions of $(dirname -- "$DIR") or give another with --dir"
    [[ -r $DIR && -w $DIR && -x $DIR ]] || ferrite_die "$DIR is not writable for $(id -un)" "change its owner or give another with --dir"
    local names
    names=$(ls -A -- "$DIR") || ferrite_die "cannot list $DIR" "the reason is above"
    if ! instance_exists && [[ -n $names ]]; then
        if [[ -d $DIR/mysql ]]; then
            ferrite_die "$DIR is the data directory of another server" "./ferrite up opens only directories that it created; choose another with --dir"
        fi
        ferrite_die "$DIR is not empty and not a data directory of ./ferrite" "give a new or empty directory with --dir"
    fi
    up_place_dir
    exec {UP_LOCK}<"$DIR"
    flock -n "$UP_LOCK" || ferrite_die "another ./ferrite up is using $DIR" "wait for it to end"
}

# Chooses the account, and sees to it that it can get to the directory. The directories above it are not changed: who may
# enter root's home is not our decision.
up_place_dir() {
    local asked=$FERRITE_ROOT/var/data
    ! ferrite_server_is_other || asked+=-$FERRITE_SERVER
    account_choose "$DIR" "$ASKED_ACCOUNT"
    ! account_as test -x "$(dirname -- "$DIR")" || return 0
    if [[ $DIR == "$asked" ]] && ! instance_exists; then
        DIR=$FERRITE_SYSTEM_HOME/data-$(printf '%s' "$asked" | sha256sum | cut -c 1-12)
        ferrite_say "the data directory is $DIR, because the server runs as $ACCOUNT, which cannot enter $(dirname -- "$asked")"
        install -d -m 755 -- "$FERRITE_SYSTEM_HOME"
        install -d -m 700 -- "$DIR"
        rmdir -- "$asked"
        ln -s -- "$DIR" "$asked"
        instance_paths
    else
        # What keeps that account out keeps every other one out, too.
        ferrite_warn "the server runs with root's privileges, because $ACCOUNT cannot enter the directories above $DIR;" \
            "to avoid this, shut it down and choose a directory in $FERRITE_SYSTEM_HOME with --dir"
        account_choose "$DIR" root
    fi
}

# The directory belongs to the server's account and is closed to all others, with what an older ./ferrite left in it.
up_close_dir() {
    if [[ $EUID -eq 0 && $(stat -c %U -- "$DIR") != "$ACCOUNT" ]]; then
        chown -R --no-dereference -- "$(id -u "$ACCOUNT"):$(id -g "$ACCOUNT")" "$DIR"
    fi
    instance_as chmod 700 "$DIR"
    instance_as mkdir -p -m 700 "$DIR/.files" "$DIR/.tmp"
    ACCESS_UPGRADED=
    ! instance_made || access_ready || ACCESS_UPGRADED=yes
}

# The server's programs and the plugin, where the account can read them. A plugin named in HA_FERRITE_SO is taken as it is.
up_programs() {
    ferrite_ensure_server
    [[ -n ${HA_FERRITE_SO:-} ]] || ferrite_build
    [[ -r $HA_FERRITE_SO ]] || ferrite_die "there is no plugin at $HA_FERRITE_SO" "HA_FERRITE_SO names it; unset it to build one"
    up_check_plugin
    account_runtime
}

# A plugin works with the very version that it was built for.
up_check_plugin() {
    local built
    built=$(grep -aom 1 'Ferrite built for MariaDB [0-9.]*' "$HA_FERRITE_SO" || true)
    built=${built##* }
    [[ -n $built ]] || ferrite_die "$HA_FERRITE_SO is no plugin of this version of Ferrite" "HA_FERRITE_SO names it; unset it to build one"
    [[ $built == "$FERRITE_SERVER_VERSION" ]] ||
        ferrite_die "the plugin $HA_FERRITE_SO was built for MariaDB $built, and this server is MariaDB $FERRITE_SERVER_VERSION" \
            "a plugin works only with the version that it was built for: unset HA_FERRITE_SO to build one, or choose the server with --server"
}

up_already_running() {
    local asked_port=$PORT asked_socket=$SOCKET built
    ferrite_ensure_server
    instance_recall
    printf 'Ferrite is already running (process %s).\n' "$PID"
    up_how_to_connect
    if [[ $asked_port != "$PORT" || $asked_socket != "$SOCKET" ]] || ((${#SERVER_OPTIONS[@]} > 0)); then
        ferrite_say "it keeps the port, socket and options with which it was started; to change them: $(instance_command down), then up"
    fi
    access_ready || ferrite_warn "it was started by an older ./ferrite: everybody on this machine can connect as root;" \
        "to secure it: $(instance_command down), then up"
    built=$(stat -c %Y "$(ferrite_plugin_path)" 2>/dev/null || true)
    if [[ -n $built && $built != "$(instance_noted plugin)" ]]; then
        ferrite_say "the plugin was rebuilt since the server started; to load it: $(instance_command down), then up"
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
    if [[ -L $SOCKET ]]; then
        [[ $(basename -- "$(readlink -- "$SOCKET")") == ferrite.sock ]] ||
            ferrite_die "$SOCKET is a link to $(readlink -- "$SOCKET"), which ./ferrite did not make" "give another path with --socket"
        if up_linked_server_runs || up_listens "$(realpath -m -- "$SOCKET")"; then
            ferrite_die "the socket $SOCKET is in use by another server" "give another path with --socket"
        fi
        return 0
    fi
    [[ -e $SOCKET ]] || return 0
    [[ -S $SOCKET ]] || ferrite_die "$SOCKET exists and is not a socket" "give another path with --socket"
    if up_listens "$SOCKET"; then
        ferrite_die "the socket $SOCKET is in use by another server" "give another path with --socket"
    fi
}

# up_listens PATH: whether some process has bound a socket to it, whoever's it is.
up_listens() { sed -n 's/^\([^ ]* *\)\{7\}//p' /proc/net/unix | grep -xF -- "$1" >/dev/null; }

# Whether a server runs on the directory that the socket's name leads into.
up_linked_server_runs() {
    local PID DIR PID_FILE
    DIR=$(dirname -- "$(readlink -- "$SOCKET")")
    PID_FILE=$DIR/ferrite.pid
    instance_running
}

# A directory whose making was cut short is made again: its note says so. A new one has what up_close_dir made.
up_create_data() {
    instance_check_note
    ! instance_made || return 0
    if instance_exists; then
        up_remove_half
    else
        instance_as rmdir -- "$DIR/.files" "$DIR/.tmp"
    fi
    instance_note creating
    ferrite_progress "creating the data directory $DIR" up_install_db ||
        ferrite_die "cannot create the system tables in $DIR" "the messages are above"
    instance_as mkdir -p -m 700 "$DIR/.files" "$DIR/.tmp"
    # The note is not to be on the disk before what it speaks of.
    sync -f -- "$DIR"
    instance_note ready
}

# The only removal in a data directory. The note stays, so that this can be cut short, too.
up_remove_half() {
    [[ $(instance_noted state) == creating && ! -e $DIR/#ferrite ]] || ferrite_die "$DIR is not half made; nothing in it was removed"
    # shellcheck disable=SC2016
    instance_as sh -c 'cd -- "$1" && find . -mindepth 1 ! -path "./$2" -delete' _ "$DIR" "$INSTANCE_NOTE"
}

# --force: a machine that cannot look up its own name gets its accounts by address.
up_install_db() {
    local me
    me=$(account_me)
    [[ ! $me =~ ^[0-9]+$ ]] || me=root
    instance_as env -u TMPDIR ${RUN_LIBS:+LD_LIBRARY_PATH="$RUN_LIBS"} "$RUN_PREFIX/bin/mariadb-install-db" --no-defaults \
        --basedir="$RUN_PREFIX" --datadir="$DIR" --force --auth-root-authentication-method=socket \
        --auth-root-socket-user="$me" --skip-test-db --skip-name-resolve --character-set-server=utf8mb4
}

up_start() {
    PLUGIN_TIME=$(stat -c %Y "$HA_FERRITE_SO")
    [[ ! -e $ERROR_LOG ]] || instance_as mv -f -- "$ERROR_LOG" "$ERROR_LOG.old"
    instance_as rm -f -- "$PID_FILE"
    ferrite_say "starting the server on $DIR$([[ $ACCOUNT == "$(account_me)" ]] || printf ' as %s' "$ACCOUNT")"
    local socket=$DIR/ferrite.sock
    # The kernel takes 107 bytes; a relative name is one in the data directory.
    (($(printf '%s' "$socket" | wc -c) <= 107)) || socket=ferrite.sock
    [[ $SOCKET == "$DIR/ferrite.sock" ]] || ln -sfn -- "$DIR/ferrite.sock" "$SOCKET"
    local command=("$RUN_MARIADBD" --no-defaults --basedir="$RUN_PREFIX" --datadir="$DIR"
        --lc-messages-dir="$RUN_SHARE" --character-sets-dir="$RUN_SHARE/charsets"
        --plugin-dir="$RUN_PLUGINS" --plugin-maturity=experimental --plugin-load-add=ha_ferrite.so
        --default-storage-engine=FERRITE --character-set-server=utf8mb4
        --socket="$socket" --port="$PORT" --bind-address=127.0.0.1
        --secure-file-priv="$DIR/.files" --tmpdir="$DIR/.tmp" --ignore-db-dirs=.files --ignore-db-dirs=.tmp
        --pid-file="$PID_FILE" --log-error="$ERROR_LOG" "${ACCESS_OPTION[@]}")
    [[ $ACCOUNT != root ]] || command+=(--user=root)
    [[ -z ${FERRITE_ENCRYPTION_KEYS:-} ]] || up_keys
    command+=("${SERVER_OPTIONS[@]}")
    up_detach "${command[@]}" {UP_LOCK}<&- &
    PID=$!
    up_note
}

# Where a restore goes on when the server is up, the directory is not ready.
up_note() {
    local state=ready
    [[ $(instance_noted state) != replaying ]] || state=replaying
    instance_note "$state" "$PID" "$PLUGIN_TIME"
}

# FERRITE_ENCRYPTION_KEYS names a key file for the server's plugin file_key_management.
up_keys() {
    local keys
    keys=$(realpath -- "$FERRITE_ENCRYPTION_KEYS")
    account_reaches "$keys" ||
        ferrite_die "the server's account $ACCOUNT cannot read $keys (FERRITE_ENCRYPTION_KEYS)" "put it where that account can read it"
    ferrite_ensure_key_management
    [[ $FERRITE_KEY_MANAGEMENT_SO -ef $RUN_PLUGINS/file_key_management.so ]] ||
        install -m 644 -- "$FERRITE_KEY_MANAGEMENT_SO" "$RUN_PLUGINS/"
    command+=(--plugin-load-add=file_key_management.so --file-key-management-filename="$keys")
}

# The server in a session of its own, its files and its log for its account alone whatever the umask here.
up_detach() {
    cd /
    # Root may open as many files as a server asks for; the account it becomes may not.
    ((EUID != 0)) || [[ $(ulimit -Hn) == unlimited ]] || (($(ulimit -Hn) >= 65536)) || ulimit -Hn 65536 2>/dev/null || true
    [[ -z $RUN_LIBS ]] || export LD_LIBRARY_PATH=$RUN_LIBS${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    # shellcheck disable=SC2016
    exec setsid nohup "${AS[@]}" bash -c 'umask 077 && log=$1 && shift && exec "$@" <"/dev/null" >>"$log" 2>&1' \
        _ "$ERROR_LOG" "$@" </dev/null >/dev/null 2>&1
}

up_wait() {
    local ticks=0
    until up_answers; do
        kill -0 "$PID" 2>/dev/null || up_died
        sleep 0.2
        ticks=$((ticks + 1))
        ((ticks % 25 != 0)) || ferrite_say "  ... not answering yet; the last line of its log: $(tail -n 1 "$ERROR_LOG" | cut -c 1-120)"
    done
}

# A server that refuses a client answers, too; errors of the client itself have numbers from 2000 on.
up_answers() {
    local said
    said=$(instance_client mariadb --connect-timeout=5 --batch -e 'DO 0' 2>&1) || [[ $said =~ (^|$'\n')ERROR\ 1[0-9]{3}\  ]]
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

up_how_to_connect() {
    local me password
    me=$(account_me)
    password=$(access_password)
    printf 'Connect with:   %s\n' "$(instance_command sql)"
    printf '  any client:   user %s, socket %s (only this account and root)\n' "$me" "$SOCKET"
    [[ -z $password ]] ||
        printf '  over TCP:     mariadb --host=127.0.0.1 --port=%s --user=%s --password=%s\n' "$PORT" "$ACCESS_USER" "$password"
    cat <<TEXT
Password file:  $(access_password_file)
Data directory: $DIR
SQL files:      $DIR/.files (LOAD DATA, INTO OUTFILE)
Error log:      $ERROR_LOG
Stop with:      $(instance_command down)
TEXT
}
