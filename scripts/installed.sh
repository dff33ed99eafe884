# shellcheck shell=bash
# The launcher in the package ferrite-tools: what server_files.sh and build.sh are in a checkout. The server is the one that is
# installed in /usr, the programs are the package's: nothing is downloaded, compiled or installed.
#
# Locking: none; nothing here is written.

# shellcheck disable=SC2034 # read by the files that source this one

FERRITE_SERIES=('')
FERRITE_SERVER_LIBS=''

# up, sql and down are for directories of their own, as `open` makes them.
installed_check_word() {
    case $1 in
        build | package | test | bench | env)
            ferrite_die "$1 needs a checkout of Ferrite's sources; this is the package ferrite-tools" "see ./ferrite help"
            ;;
    esac
}

installed_usage() {
    cat <<'TEXT'
Ferrite, a transactional storage engine for MariaDB: the commands for its databases. The manual is ferrite(1).

SERVER is one of these; without any, it is this machine's server, through its usual socket:
  --socket FILE          its socket
  --defaults-file FILE   an option file with the account in its group [client]; root needs none on Debian

  ./ferrite backup TO [SERVER] [--incremental-from BACKUP] [--rate BYTES]
        hot backup of the running server, complete and verified when this ends with exit code 0
  ./ferrite restore BACKUP [INCREMENT ...] --into NEWDIR [--owner ACCOUNT] [--encrypt KEY-NUMBER | --decrypt]
                  [--until TIME|GTID --binlogs DIR [-- MARIADBD-OPTIONS]]
        a new data directory from backups; with --until also from the binary log, by a server with those options
  ./ferrite snapshot NAME [SERVER] | --list | --drop NAME
        keep the Ferrite tables of the running server as they are now, by the change since; --list shows what is kept
  ./ferrite rewind NAME [--dir DATADIR] [--force] [--binlog reset|continue]
        back to a snapshot in seconds, while the server is stopped; the present is kept as a snapshot, too
  ./ferrite open NAME --port N [--dir DATADIR] [--at NEWDIR] [--socket PATH] [-- MARIADBD-OPTIONS]
        a second server beside the running one, on which its Ferrite tables are those of a snapshot, read-only
  ./ferrite status [SERVER]
        process, port, socket, uptime, versions
  ./ferrite top [OPTIONS]
        what it is doing, on one screen: ferrite-top(1)
  ./ferrite migrate check|convert|back|status|forget [OPTIONS]
        look at a server's InnoDB tables, move them to Ferrite, and back; migrate COMMAND --help has the options

A server of its own, as open makes one, in a directory that only ./ferrite uses; it runs beside this machine's server:
  ./ferrite up --dir DIR [--port N] [--socket PATH] [-- MARIADBD-OPTIONS]
  ./ferrite sql --dir DIR [CLIENT-ARGUMENTS]
  ./ferrite down --dir DIR
backup, snapshot, status and top take --dir DIR for it, too.

build, package, test and bench need a checkout of Ferrite's sources.
TEXT
}

# Sets FERRITE_SERVER_VERSION: the server's, or that of mariadb-backup where there is no server.
installed_version() {
    local program
    [[ -z ${FERRITE_SERVER_VERSION:-} ]] || return 0
    for program in /usr/sbin/mariadbd /usr/bin/mariadb-backup; do
        FERRITE_SERVER_VERSION=$("$program" --no-defaults --version 2>&1 | sed -nE 's/.* (Ver|MariaDB server) +([0-9]+\.[0-9]+\.[0-9]+).*/\2/p' | head -n 1) || true
        [[ -z $FERRITE_SERVER_VERSION ]] || return 0
    done
    ferrite_die "there is no MariaDB on this machine: neither /usr/sbin/mariadbd nor /usr/bin/mariadb-backup says its version" \
        "install mariadb-server; for a restore alone, mariadb-backup"
}

ferrite_choose_server() {
    installed_version
    local series=${FERRITE_SERVER_VERSION%.*}
    [[ ${FERRITE_SERVER:-$series} == "$series" ]] ||
        ferrite_die "this machine has MariaDB $FERRITE_SERVER_VERSION, and $FERRITE_SERVER is asked for" \
            "do it on a machine with that series, or in a checkout of Ferrite's sources"
    export FERRITE_SERVER=$series FERRITE_SERVER_VERSION
    FERRITE_SERIES=("$series")
}

# There is one.
ferrite_server_is_other() { return 1; }

ferrite_ensure_server() {
    ferrite_choose_server ""
    FERRITE_SERVER_ROOT='' FERRITE_SERVER_HOME='' FERRITE_SERVER_PREFIX=/usr FERRITE_MARIADBD=/usr/sbin/mariadbd
    FERRITE_SERVER_SHARE=/usr/share/mysql
    [[ -d $FERRITE_SERVER_SHARE/charsets ]] || FERRITE_SERVER_SHARE=/usr/share/mariadb
}

ferrite_ensure_backup_tool() { FERRITE_MARIADB_BACKUP=/usr/bin/mariadb-backup; }

ferrite_ensure_key_management() { FERRITE_KEY_MANAGEMENT_SO=/usr/lib/mysql/plugin/file_key_management.so; }

ferrite_with_libs() { "$@"; }

ferrite_plugin_path() { printf '/usr/lib/mysql/plugin/ha_ferrite.so\n'; }

# Nothing is built: it is there, or its package is missing.
ferrite_build() {
    HA_FERRITE_SO=$(ferrite_plugin_path)
    [[ -e $HA_FERRITE_SO ]] || ferrite_die "$HA_FERRITE_SO is missing" "install the package mariadb-plugin-ferrite"
    [[ -x $FERRITE_MARIADBD ]] || ferrite_die "$FERRITE_MARIADBD is missing" "install the package mariadb-server"
    export HA_FERRITE_SO
}

ferrite_ensure_tools() { FERRITE_TOOLS_BIN=/usr/bin; }
