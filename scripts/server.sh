# shellcheck shell=bash
# A running server that ./ferrite did not start: how to connect to it, what it says of itself, and whose it is.
#
# It is meant by --socket or --defaults-file, and in the package ferrite-tools by the lack of --dir. Credentials are the mariadb
# client's, for mariadb-backup as well: both must be the same account. Everything else is asked of the server. server_connect sets what
# instance.sh does for an instance: DIR, PORT, SOCKET, LOGIN, DEFAULTS, FERRITE_SERVER, FERRITE_SERVER_VERSION.
#
# Rights: only root, or the account that owns the data directory, can back it up. The owner of #ferrite in it is the server's account. What the
# server says is not to be trusted by root: a program beside it is run only if that account could not have put it there, and a number is
# one before it is counted with, since the shell's arithmetic runs the commands that it finds in a word.
# Locking: none.
# shellcheck source=scripts/instance.sh
source "$FERRITE_ROOT/scripts/instance.sh"

# What the options say; SERVER_IS: server_connect has found it.
SERVER_SOCKET='' SERVER_DEFAULTS='' SERVER_IS=''
# What it says of itself, by the names of its variables, and `engine`.
declare -gA SERVER_FACTS=()
# A restore to a point in time needs these as they were, and InnoDB's files in the same places.
SERVER_KEPT=(default_storage_engine character_set_server collation_server lower_case_table_names innodb_page_size innodb_data_file_path innodb_undo_tablespaces)
SERVER_PLACES=(innodb_data_home_dir innodb_log_group_home_dir innodb_undo_directory aria_log_dir_path)
# Options of mariadb-backup with which it makes no whole backup in its directory.
SERVER_PARTIAL=(stream compress databases databases-file databases-exclude tables tables-file tables-exclude export incremental incremental-basedir
    incremental-dir incremental-lsn incremental-history-name incremental-history-uuid)

# server_set OPTION VALUE
server_set() {
    case $1 in
        --socket) SERVER_SOCKET=$(realpath -m -- "$2") ;;
        --defaults-file)
            SERVER_DEFAULTS=$(realpath -m -- "$2")
            [[ -r $SERVER_DEFAULTS ]] || ferrite_die "--defaults-file: $SERVER_DEFAULTS cannot be read"
            ;;
    esac
}

# server_is_meant: and not an instance, whose directory --dir has given (INSTANCE_ASKED).
server_is_meant() {
    if [[ -n $SERVER_SOCKET$SERVER_DEFAULTS ]]; then
        [[ -z $INSTANCE_ASKED ]] || ferrite_die "--dir names an instance of ./ferrite, --socket or --defaults-file a server: give one of them"
        return 0
    fi
    ferrite_is_installed && [[ -z $INSTANCE_ASKED ]]
}

# server_find: the server that is meant, or the instance, which runs.
server_find() {
    if server_is_meant; then
        server_connect
        return
    fi
    instance_paths
    instance_exists || [[ ! -d $DIR/#ferrite ]] || ferrite_die "$DIR is the data directory of a server that ./ferrite did not start" \
        "name the server itself: --socket FILE or --defaults-file FILE"
    instance_choose_server
    ferrite_ensure_server
    instance_running || ferrite_die "no server runs on $DIR" \
        "start it with: $(instance_command up); or name another server with --socket or --defaults-file"
    instance_recall
}

server_connect() {
    server_client
    DEFAULTS=(${SERVER_DEFAULTS:+"--defaults-file=$SERVER_DEFAULTS"})
    # Its files are here, so it is; an option file may say how others reach it.
    LOGIN=(--host=localhost --protocol=socket ${SERVER_SOCKET:+"--socket=$SERVER_SOCKET"})
    server_take_socket
    # shellcheck disable=SC2034 # read by the files that source this one
    SERVER_IS=1
    server_ask
    local version=${SERVER_FACTS[version]:-}
    [[ $version =~ ^([0-9]+\.[0-9]+)\.[0-9]+ ]] || ferrite_die "the server says that it is version '$version'"
    export FERRITE_SERVER=${BASH_REMATCH[1]} FERRITE_SERVER_VERSION=${BASH_REMATCH[0]}
    DIR=$(realpath -m -- "${SERVER_FACTS[datadir]}")
    PORT=${SERVER_FACTS[port]}
    [[ ${SERVER_FACTS[engine]:-} == *', ACTIVE' ]] ||
        ferrite_die "the server on $SOCKET (MariaDB $version) has not loaded Ferrite" "nothing in it is Ferrite's: mariadb-backup alone backs it up"
}

# Sets SOCKET, the one that the client has taken, and says it to every later program: another one may have another default, and what the
# server calls its socket may here be that of another server, as with a container's.
server_take_socket() {
    local said
    said=$(instance_client mariadb --batch --execute='\s' 2>&1) || server_silent "$said"
    SOCKET=$(sed -nE 's/^UNIX socket:[[:space:]]+//p' <<<"$said" | head -n 1)
    [[ -n $SOCKET ]] || ferrite_die "the client mariadb does not say through which socket it has connected" "name it: --socket FILE"
    SOCKET=$(realpath -ms -- "$SOCKET")
    [[ -n $SERVER_SOCKET ]] || LOGIN+=("--socket=$SOCKET")
}

# Sets SERVER_BIN: the client on the PATH, else the one that came with the private server.
server_client() {
    local found
    FERRITE_SERVER_LIBS=
    if found=$(command -v mariadb); then
        SERVER_BIN=${found%/*}
        return
    fi
    ferrite_ensure_server
    SERVER_BIN=$FERRITE_SERVER_PREFIX/bin
    [[ -x $SERVER_BIN/mariadb ]] || ferrite_die "the client mariadb is missing" "install the package mariadb-client"
}

server_silent() {
    ferrite_die "the server does not answer: ${1##*$'\n'}" \
        "--socket FILE names its socket; --defaults-file FILE an option file with the account in its group [client]"
}

# Fills SERVER_FACTS. A variable that the server does not have is missing in it.
server_ask() {
    local said name value names
    names=$(printf "'%s'," version datadir basedir port pid_file log_bin "${SERVER_KEPT[@]}" "${SERVER_PLACES[@]}")
    said=$(instance_client mariadb --batch --raw --skip-column-names -e "
        SELECT LOWER(VARIABLE_NAME), VARIABLE_VALUE FROM information_schema.GLOBAL_VARIABLES WHERE LOWER(VARIABLE_NAME) IN (${names%,});
        SELECT 'uptime', VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'UPTIME';
        SELECT 'engine', CONCAT('Ferrite ', COALESCE(PLUGIN_AUTH_VERSION, PLUGIN_VERSION), ', ', PLUGIN_STATUS)
            FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'FERRITE'" 2>&1) ||
        server_silent "$said"
    while IFS=$'\t' read -r name value; do
        [[ ! $name =~ ^[a-z_]+$ ]] || SERVER_FACTS[$name]=$value
    done <<<"$said"
    [[ ${SERVER_FACTS[uptime]:-} =~ ^[1-9][0-9]{0,11}$ ]] || SERVER_FACTS[uptime]=0
    [[ ${SERVER_FACTS[port]:-} =~ ^[0-9]{1,5}$ ]] || SERVER_FACTS[port]=0
}

# Sets ACCOUNT and AS, the account that the server runs as. Refuses who cannot read what is to be copied.
server_account() {
    local owner me
    me=$(account_me)
    owner=$(stat -c %U -- "$DIR" 2>/dev/null) ||
        ferrite_die "$DIR, the data directory of the server on $SOCKET, is not here, or closed to $me" \
            "a backup is taken where the server's files are, by root or by the account that the server runs as"
    ((EUID == 0)) || [[ $owner == "$me" ]] ||
        ferrite_die "$DIR, the server's data directory, belongs to $owner and is closed to $me" \
            "a backup reads all of it: run this as root, or as $owner"
    owner=$(stat -c %U -- "$DIR/#ferrite" 2>/dev/null) || ferrite_die "$DIR has no Ferrite tables: there is no $DIR/#ferrite"
    [[ $owner != UNKNOWN ]] || ferrite_die "$DIR/#ferrite belongs to an account that has no name here"
    ACCOUNT=$owner
    AS=()
    ((EUID != 0)) || account_switch "$ACCOUNT"
}

# Sets FERRITE_MARIADB_BACKUP: on the PATH, or beside the server, and of its version.
server_backup_tool() {
    local base path seen='' known
    base=$(realpath -m -- "${SERVER_FACTS[basedir]}")
    known=$(command -v mariadb-backup || true)
    # shellcheck disable=SC2034 # read by the files that source this one
    for path in "$known" "$(realpath -m -- "$base/bin/mariadb-backup")"; do
        [[ -n $path && -x $path ]] || continue
        if [[ $path == "$base/bin/"* ]] && { server_could_change "$path" || server_could_change "$base/lib"; }; then
            seen="$path, which the server's account $ACCOUNT could change, is not run"
            continue
        fi
        if [[ $path != "$known" ]] && ! server_is_roots "$path"; then
            seen="$path, which others than root could change, is not run"
            continue
        fi
        server_look_at "$path"
        FERRITE_MARIADB_BACKUP=$path
        [[ $SEEN_VERSION != "$FERRITE_SERVER_VERSION" ]] || return 0
        seen="$path is of ${SEEN_VERSION:-a version that it does not say}"
    done
    [[ -n $seen ]] || ferrite_die "mariadb-backup is missing: it is neither in $base/bin nor on the PATH" \
        "it copies what is not Ferrite's: install the package mariadb-backup of the server's version, $FERRITE_SERVER_VERSION"
    ferrite_die "there is no mariadb-backup of the server's version: $seen, and the server is MariaDB $FERRITE_SERVER_VERSION" \
        "install the package mariadb-backup of that version; a server that was upgraded and not restarted has to be restarted"
}

# What is in option files leaves files out of a backup by mariadb-backup, or writes them elsewhere or in another form: it is refused, by
# every name that mariadb-backup knows it by.
server_check_options() {
    local program said option partial
    program=$(server_print_defaults) || exit 1
    said=$(ferrite_with_libs "$program" "${DEFAULTS[@]}" mariadb-backup mariabackup xtrabackup client client-server client-mariadb) ||
        ferrite_die "cannot read the option files of mariadb-backup" "the reason is above"
    while IFS= read -r option; do
        option=${option%%=*}
        option=${option//_/-}
        option=${option#--}
        option=${option#loose-}
        option=${option#enable-}
        for partial in "${SERVER_PARTIAL[@]}"; do
            [[ -z $option || $partial != "$option"* ]] || ferrite_die "an option file has '$option' for mariadb-backup: this would be no whole backup" \
                "take it out of there, or name another file with --defaults-file: it is in a group [mariadb-backup], [mariabackup], [xtrabackup] or [client]"
        done
    done <<<"$said"
}

# Files of the system tablespace with paths of their own are not among those that an option can lead into the restored directory, whose
# server would open the old ones.
server_check_places() {
    [[ ${SERVER_FACTS[innodb_data_file_path]:-} != */* ]] || ferrite_die "innodb_data_file_path has a path in it: ${SERVER_FACTS[innodb_data_file_path]}" \
        "a server on the restored directory would open the old files there: move them into one directory, which innodb_data_home_dir may name"
}

# server_tell_links DIR: of InnoDB's tables with a DATA DIRECTORY, the file .isl says where they were, and a server opens them there.
server_tell_links() {
    local found
    found=$(find "$1" -name '*.isl' -printf '%P\n' 2>/dev/null | sort | head -n 5)
    [[ -z $found ]] || ferrite_warn "InnoDB tables have a DATA DIRECTORY of their own (${found//$'\n'/, }): of them the backup has the files," \
        "but a server on the restored directory opens those that are where each .isl says. Rebuild such tables without it, or see to these files by hand"
}

# The program my_print_defaults: on the PATH, or beside the client, with which it comes.
server_print_defaults() {
    local path
    for path in "$(command -v my_print_defaults || true)" "$SERVER_BIN/my_print_defaults"; do
        [[ -n $path && -x $path ]] || continue
        printf '%s' "$path"
        return
    done
    ferrite_die "my_print_defaults is missing: it says which options mariadb-backup would read" "install the package mariadb-client-core"
}

# server_could_change PATH: whether the server's account could put something else there. In a directory with the sticky bit, as /tmp, all
# may write, and rename only what is theirs.
server_could_change() {
    local at
    ((${#AS[@]} > 0)) || return 1
    at=$(realpath -m -- "$1")
    while [[ $at != / ]]; do
        [[ $(stat -c %U -- "$at" 2>/dev/null) != "$ACCOUNT" ]] || return 0
        [[ -k $at ]] || ! (cd / && account_as test -w "$at") || return 0
        at=$(dirname -- "$at")
    done
    return 1
}

# server_is_roots PATH: for root, whether nobody else could put something else there: in what the path leads to, and in no directory above
# that. One with the sticky bit may be above: in it nobody can rename what is root's.
server_is_roots() {
    local at owner mode sticky=0
    ((EUID == 0)) || return 0
    at=$(realpath -e -- "$1" 2>/dev/null) || return 1
    while true; do
        read -r owner mode < <(stat -c '%u %a' -- "$at") || return 1
        ((owner == 0 && ((8#$mode & 8#22) == 0 || (8#$mode & sticky) != 0))) || return 1
        [[ $at != / ]] || return 0
        sticky=$((8#1000))
        at=$(dirname -- "$at")
    done
}

# server_libs_beside BASE: the directories of libraries there, for LD_LIBRARY_PATH; for root only those that are root's.
server_libs_beside() {
    local at real found=
    for at in "$1"/lib/*-linux-gnu* "$1"/../lib/*-linux-gnu*; do
        real=$(realpath -e -- "$at" 2>/dev/null) || continue
        [[ $real == *:* ]] || ! server_is_roots "$real" || found+=${found:+:}$real
    done
    printf '%s' "$found"
}

# server_look_at PROGRAM: sets SEEN_VERSION. One beside the server that does not run with the machine's libraries may with those
# beside it: then FERRITE_SERVER_LIBS names them.
server_look_at() {
    local said libs tried
    libs=$(server_libs_beside "${1%/bin/*}")
    for tried in "$FERRITE_SERVER_LIBS" ${libs:+"$libs"}; do
        said=$(FERRITE_SERVER_LIBS=$tried ferrite_with_libs "$1" --version 2>&1) || continue
        FERRITE_SERVER_LIBS=$tried
        SEEN_VERSION=$(sed -nE 's/.* MariaDB server ([0-9]+\.[0-9]+\.[0-9]+).*/\1/p' <<<"$said")
        return
    done
    SEEN_VERSION=
}

# What a restore has to know, as lines for backup.info: options of the server, and those that say where its files are if that
# is not the data directory.
server_note() {
    local name value
    printf 'kind=server\nowner=%s\ndatadir=%s\n' "$ACCOUNT" "$DIR"
    for name in "${SERVER_KEPT[@]}"; do
        value=${SERVER_FACTS[$name]:-}
        [[ -z $value ]] || printf 'option=--%s=%s\n' "${name//_/-}" "$value"
    done
    for name in "${SERVER_PLACES[@]}"; do
        value=${SERVER_FACTS[$name]:-}
        [[ -z $value || $(cd -- "$DIR" && realpath -m -- "$value") == "$DIR" ]] || printf 'place=--%s\n' "${name//_/-}"
    done
}

# What the option files have for the start of this machine's server, one a line.
server_defaults() { my_print_defaults mysqld server mariadb mariadbd 2>/dev/null; }

# The data directory of this machine's server, whether it runs or not.
server_default_dir() {
    local said
    said=$(server_defaults | sed -n 's/^--datadir=//p' | tail -n 1) || true
    printf '%s\n' "${said:-/var/lib/mysql}"
}

server_status() {
    local pid uptime=${SERVER_FACTS[uptime]} file=${SERVER_FACTS[pid_file]:-}
    [[ $file == /* ]] || file=$DIR/$file
    pid=$(head -c 20 -- "$file" 2>/dev/null) || true
    [[ $pid =~ ^[0-9]+$ ]] || pid=unknown
    printf 'process  %s\nport     %s\nsocket   %s\ndata     %s\n' "$pid" "$PORT" "$SOCKET" "$DIR"
    printf 'uptime   %d d %02d:%02d:%02d\n' $((uptime / 86400)) $((uptime / 3600 % 24)) $((uptime / 60 % 60)) $((uptime % 60))
    printf 'server   %s\nengine   %s\n' "${SERVER_FACTS[version]}" "${SERVER_FACTS[engine]}"
}
