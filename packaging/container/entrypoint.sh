#!/bin/sh
# Lays out the data directory at the first start, then becomes the server.
#
# MARIADB_ROOT_PASSWORD (or _FILE): root's password over TCP, needed once, at the first start. Through the socket root needs
# none. The directory is laid out beside its place and renamed when it is complete: after a start that was cut off the next
# one begins anew.
set -eu

DATA=/var/lib/mysql/data

fail() {
    echo "entrypoint: $*" >&2
    exit 1
}

# In SQL: quotes doubled, backslashes too.
quoted() { printf "'%s'" "$(printf '%s' "$1" | sed "s/\\\\/\\\\\\\\/g; s/'/''/g")"; }

root_password() {
    if [ -n "${MARIADB_ROOT_PASSWORD_FILE:-}" ]; then
        cat -- "$MARIADB_ROOT_PASSWORD_FILE"
    else
        printf '%s' "${MARIADB_ROOT_PASSWORD:-}"
    fi
}

lay_out() {
    password=$(root_password)
    [ -n "$password" ] || fail "there is no database yet: give MARIADB_ROOT_PASSWORD or MARIADB_ROOT_PASSWORD_FILE for the first start"
    rm -rf "$DATA.new"
    mkdir -m 700 "$DATA.new"
    chown mysql:mysql "$DATA.new"
    mariadb-install-db --user=mysql --datadir="$DATA.new" --skip-test-db --skip-name-resolve \
        --auth-root-authentication-method=socket >/dev/null
    {
        # echo would take backslashes for its own.
        printf '%s\n' "FLUSH PRIVILEGES;" \
            "CREATE USER root@'%' IDENTIFIED BY $(quoted "$password");" \
            "GRANT ALL PRIVILEGES ON *.* TO root@'%' WITH GRANT OPTION;"
    } | mariadbd --user=mysql --datadir="$DATA.new" --bootstrap
    mv "$DATA.new" "$DATA"
}

case ${1:-} in
    mariadbd | -*)
        [ "$1" != mariadbd ] || shift
        [ -d "$DATA" ] || lay_out
        exec mariadbd --user=mysql "$@"
        ;;
    *) exec "$@" ;;
esac
