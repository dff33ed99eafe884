# shellcheck shell=bash
# Who may connect to a private server: the account that started it (and root) through the socket, asked of the kernel;
# and the user `ferrite`, with a password, from 127.0.0.1. The server reads these statements before it listens, once per
# directory; nothing of them reaches the binary log.

# shellcheck disable=SC2034 # read by the files that source this one

ACCESS_USER=ferrite
ACCESS_VERSION=1

access_password_file() { printf '%s/ferrite.password\n' "$DIR"; }
access_script() { printf '%s/.access.sql\n' "$DIR"; }

access_password() { cat "$(access_password_file)" 2>/dev/null || true; }

# Whether this directory's accounts are already as they are made today.
access_ready() { [[ $(instance_noted access) == "$ACCESS_VERSION" ]]; }

# Writes the statements that a directory needs, new or made by an older ./ferrite; ACCESS_OPTION is for the server.
access_prepare() {
    ACCESS_OPTION=()
    ACCESS=$(instance_noted access)
    if [[ -n ${FERRITE_REPLAY_USER:-} && ${FERRITE_REPLAYING:-} == "$DIR" ]]; then
        access_replay_statements | instance_write "$(access_script)"
        ACCESS_OPTION=(--init-file="$(access_script)")
        return
    fi
    ! access_ready || return 0
    local option
    for option in "${SERVER_OPTIONS[@]}"; do
        case ${option//_/-} in
            --skip-grant-tables*)
                ferrite_warn "with --skip-grant-tables every client that can connect has all privileges"
                return 0
                ;;
            --init-file*)
                ferrite_die "the first start of a data directory sets up its accounts and takes no --init-file" \
                    "start it once without, then with it"
                ;;
        esac
    done
    local password
    password=$(access_password)
    if [[ -z $password ]]; then
        password=$(od -An -N 20 -tx1 /dev/urandom | tr -d ' \n')
        printf '%s\n' "$password" | instance_write "$(access_password_file)"
    fi
    access_statements "$password" | instance_write "$(access_script)"
    ACCESS_OPTION=(--init-file="$(access_script)")
    ACCESS_NEXT=$ACCESS_VERSION
}

# After the first answer of a server that has read them.
access_done() {
    ((${#ACCESS_OPTION[@]} > 0)) || return 0
    instance_as rm -f -- "$(access_script)"
    access_tell_old
    ACCESS=$ACCESS_VERSION
}

# An account whose first way in is an empty password. JSON_VALUE of a missing key is NULL.
ACCESS_OPEN="COALESCE(JSON_VALUE(Priv, '\$.plugin'), '') IN ('', 'mysql_native_password')
    AND COALESCE(JSON_VALUE(Priv, '\$.authentication_string'), '') = ''
    AND NOT JSON_EXISTS(Priv, '\$.is_role')
    AND COALESCE(JSON_VALUE(Priv, '\$.account_locked'), 0) = 0"

access_statements() {
    local password=$1
    cat <<SQL
SET SESSION sql_log_bin = 0;
DELETE FROM mysql.global_priv WHERE User = 'root' AND Host <> 'localhost' AND $ACCESS_OPEN;
UPDATE mysql.global_priv SET Priv = JSON_SET(Priv, '\$.plugin', 'mysql_native_password',
    '\$.authentication_string', 'invalid', '\$.auth_or', JSON_ARRAY(JSON_OBJECT(), JSON_OBJECT('plugin', 'unix_socket')))
    WHERE User = 'root' AND Host = 'localhost' AND $ACCESS_OPEN;
FLUSH PRIVILEGES;
SQL
    access_user_statements "'$(account_me)'@'localhost'" "VIA unix_socket"
    access_user_statements "'$ACCESS_USER'@'127.0.0.1'" "BY '$password'"
    printf "ALTER USER '%s'@'127.0.0.1' IDENTIFIED BY '%s';\n" "$ACCESS_USER" "$password"
    printf 'CREATE DATABASE IF NOT EXISTS test;\n'
}

# The user of a restore that applies the binary log to the directory of a server that is no instance: no other user of it changes, and
# this one goes before the server does.
access_replay_statements() {
    printf "SET SESSION sql_log_bin = 0;\nCREATE USER '%s'@'localhost' IDENTIFIED BY '%s';\n" "$FERRITE_REPLAY_USER" "$MYSQL_PWD"
    printf "GRANT ALL PRIVILEGES ON *.* TO '%s'@'localhost' WITH GRANT OPTION;\n" "$FERRITE_REPLAY_USER"
}

# An account that is there already keeps its way in.
access_user_statements() {
    [[ $1 != "'root'@"* ]] || return 0
    printf 'CREATE USER IF NOT EXISTS %s IDENTIFIED %s;\n' "$1" "$2"
    printf 'GRANT ALL PRIVILEGES ON *.* TO %s WITH GRANT OPTION;\n' "$1"
}

# What an older ./ferrite left open and this one does not close by itself is named.
access_tell_old() {
    local open
    [[ -n ${ACCESS_UPGRADED:-} ]] || return 0
    ferrite_say "this directory was made by an older ./ferrite: its root accounts had no password. Now root can connect only through the socket" \
        "only, as the account that runs this; TCP needs the user $ACCESS_USER and the password shown below"
    open=$(instance_query "SELECT CONCAT(QUOTE(User), '@', QUOTE(Host)) FROM mysql.global_priv WHERE $ACCESS_OPEN" || true)
    [[ -z $open ]] || ferrite_warn "these accounts still have no password; everybody on this machine can connect as them:" "${open//$'\n'/, }"
}
