# shellcheck shell=bash
# The private server: which version, and its files unpacked in the cache, beside whatever is installed.
#
# Each series comes from the Debian release that carries it. On that release, and on newer ones, its programs run with the
# machine's own C library; on an older one they run by the loader and the libraries of their release, which are unpacked
# beside them (server_loader.sh).
#
# ferrite_ensure_server sets and exports:
#   FERRITE_SERVER           the series: 10.11 or 11.8
#   FERRITE_SERVER_PACKAGE   the package version, such as 1:10.11.18-0+deb12u1
#   FERRITE_SERVER_VERSION   the server version, such as 10.11.18
#   FERRITE_SERVER_ROOT      where the packages are unpacked
#   FERRITE_SERVER_PREFIX    the server's basedir: sbin/mariadbd, bin/mariadb, lib/mysql/plugin
#   FERRITE_SERVER_SHARE     messages, character sets and the SQL of the system tables: share/mysql or share/mariadb in it
#   FERRITE_MARIADBD         the server binary
#   FERRITE_SERVER_LIBS      library directories for LD_LIBRARY_PATH (see ferrite_with_libs); empty for a server that
#                            runs by its own loader
#   FERRITE_SRC              the server's source tree: include/, sql/ and little else
#   FERRITE_SERVER_INCLUDES  the include options for a plugin, in the right order
#   FERRITE_SERVICES_LIB     libmysqlservices.a

# The series whose handler interface the plugin knows, the first by default: series, Debian release, its number.
FERRITE_SERIES=("10.11 bookworm 12" "11.8 trixie 13")

# ferrite_choose_server DEFAULT: sets FERRITE_SERVER, unless it is set, and what follows from it.
ferrite_choose_server() {
    local entry series known=()
    FERRITE_SERVER=${FERRITE_SERVER:-$(ferrite_series_of_package "${FERRITE_SERVER_PACKAGE:-}")}
    FERRITE_SERVER=${FERRITE_SERVER:-${1:-${FERRITE_SERIES[0]%% *}}}
    for entry in "${FERRITE_SERIES[@]}"; do
        series=${entry%% *}
        known+=("$series")
        [[ $series == "$FERRITE_SERVER" ]] || continue
        read -r _ FERRITE_RELEASE FERRITE_RELEASE_NUMBER <<<"$entry"
        export FERRITE_SERVER
        # A package named for another series (by a program that runs this one) is not meant.
        [[ $(ferrite_series_of_package "${FERRITE_SERVER_PACKAGE:-}") == "$series" ]] || unset FERRITE_SERVER_PACKAGE
        return
    done
    ferrite_die "there is no Ferrite for MariaDB '$FERRITE_SERVER'" "give one of these to --server or FERRITE_SERVER: ${known[*]}"
}

# Whether another series than the default is asked for.
ferrite_server_is_other() { [[ ${FERRITE_SERVER:-${FERRITE_SERIES[0]%% *}} != "${FERRITE_SERIES[0]%% *}" ]]; }

# 1:10.11.18-0+deb12u1 is of 10.11.
ferrite_series_of_package() { sed -nE 's/^([0-9]+:)?([0-9]+\.[0-9]+)\..*/\2/p' <<<"$1"; }

# Whether the server's programs are of a newer Debian than this machine's.
ferrite_server_is_newer() {
    local ID VERSION_ID=
    # shellcheck disable=SC1091
    . /etc/os-release
    [[ $ID == debian && $VERSION_ID =~ ^[0-9]+ ]] && ((BASH_REMATCH[0] < FERRITE_RELEASE_NUMBER))
}

ferrite_ensure_server() {
    [[ -n ${FERRITE_SERVER_READY:-} ]] && return
    ferrite_choose_server ""
    if ! ferrite_server_known || ! ferrite_server_has core; then
        # shellcheck source=scripts/apt.sh
        source "$FERRITE_ROOT/scripts/apt.sh"
        ferrite_locked cache ferrite_fetch_server
        ferrite_server_known
    fi
    ferrite_server_paths
    FERRITE_SERVER_READY=yes
}

ferrite_ensure_test_suite() {
    ferrite_need_tool perl perl patch patch /etc/protocols netbase
    ferrite_ensure_feature tests mariadb-test mariadb-test-data mariadb-server
    export FERRITE_MYSQL_TEST=$FERRITE_SERVER_SHARE/mysql-test
    [[ -d $FERRITE_MYSQL_TEST ]] || FERRITE_MYSQL_TEST=$FERRITE_SERVER_SHARE/mariadb-test
}

# The plugin file_key_management.
ferrite_ensure_key_management() {
    ferrite_ensure_feature keys mariadb-server
    export FERRITE_KEY_MANAGEMENT_SO=$FERRITE_SERVER_PREFIX/lib/mysql/plugin/file_key_management.so
}

ferrite_ensure_rocksdb() {
    ferrite_ensure_feature rocksdb mariadb-plugin-rocksdb
    export FERRITE_ROCKSDB_SO=$FERRITE_SERVER_PREFIX/lib/mysql/plugin/ha_rocksdb.so
}

ferrite_ensure_backup_tool() {
    ferrite_ensure_feature backup mariadb-backup
    export FERRITE_MARIADB_BACKUP=$FERRITE_SERVER_PREFIX/bin/mariadb-backup
}

ferrite_ensure_galera() {
    ferrite_ensure_feature galera galera-4
    export FERRITE_GALERA=$FERRITE_SERVER_PREFIX/lib/galera/libgalera_smm.so
}

# Prometheus and the exporter that reads the server's status.
ferrite_ensure_prometheus() {
    ferrite_ensure_feature prometheus prometheus prometheus-mysqld-exporter
    export FERRITE_PROMETHEUS=$FERRITE_SERVER_PREFIX/bin
}

ferrite_ensure_sysbench() {
    ferrite_ensure_feature sysbench sysbench
    export FERRITE_SYSBENCH=$FERRITE_SERVER_PREFIX/bin/sysbench FERRITE_SYSBENCH_LUA=$FERRITE_SERVER_PREFIX/share/sysbench
}

ferrite_with_libs() {
    if [[ -z $FERRITE_SERVER_LIBS ]]; then
        "$@"
        return
    fi
    LD_LIBRARY_PATH=$FERRITE_SERVER_LIBS${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$@"
}

# The file of the cache that says which version of the series was chosen.
ferrite_server_note() {
    if ferrite_server_is_other; then
        printf '%s/server-version-%s\n' "$FERRITE_CACHE" "$FERRITE_SERVER"
    else
        printf '%s/server-version\n' "$FERRITE_CACHE"
    fi
}

ferrite_server_known() {
    local version=${FERRITE_SERVER_PACKAGE:-} note
    note=$(ferrite_server_note)
    [[ -n $version ]] || { [[ -r $note ]] && version=$(<"$note"); }
    [[ -n $version ]] || return 1
    export FERRITE_SERVER_PACKAGE=$version
    FERRITE_SERVER_HOME=$FERRITE_CACHE/mariadb-${version#*:}
}

ferrite_server_has() { [[ -e $FERRITE_SERVER_HOME/has/$1 ]]; }

ferrite_server_paths() {
    local include root=$FERRITE_SERVER_HOME/root src=$FERRITE_SERVER_HOME/src
    local version=${FERRITE_SERVER_PACKAGE#*:}
    local lib=("$root"/usr/lib/*-linux-gnu*)
    include=$root/usr/include
    export FERRITE_SERVER_VERSION=${version%%[-+]*}
    export FERRITE_SERVER_ROOT=$root FERRITE_SERVER_PREFIX=$root/usr FERRITE_MARIADBD=$root/usr/sbin/mariadbd
    export FERRITE_SERVER_LIBS=${lib[0]}:$root/lib/${lib[0]##*/}
    ! ferrite_server_is_newer || FERRITE_SERVER_LIBS=
    export FERRITE_SERVER_SHARE=$root/usr/share/mysql
    [[ -d $FERRITE_SERVER_SHARE/charsets ]] || FERRITE_SERVER_SHARE=$root/usr/share/mariadb
    export FERRITE_SRC=$src FERRITE_SERVICES_LIB=${lib[0]}/libmysqlservices.a
    export FERRITE_SERVER_INCLUDES="-isystem $include/mariadb/server -isystem $FERRITE_SERVER_HOME/generated \
-isystem $src/include -isystem $src/sql -isystem $src/wsrep-lib/include -isystem $src/wsrep-lib/wsrep-API/v26 \
-isystem $include -isystem $include/${lib[0]##*/}"
}

# ferrite_ensure_feature NAME PACKAGE...: packages unpacked beside the server, once.
ferrite_ensure_feature() {
    ferrite_ensure_server
    ferrite_server_has "$1" && return
    # shellcheck source=scripts/apt.sh
    source "$FERRITE_ROOT/scripts/apt.sh"
    ferrite_locked cache ferrite_fetch_feature "$@"
}

ferrite_fetch_feature() {
    local name=$1
    shift
    ferrite_server_has "$name" && return
    ferrite_apt_update
    ferrite_unpack_packages "the packages $*" "$@" ||
        ferrite_die "cannot fetch the packages $*" "check the network and /etc/apt, then try again"
    ferrite_server_done "$name"
}

ferrite_server_done() {
    mkdir -p "$FERRITE_SERVER_HOME/has"
    touch "$FERRITE_SERVER_HOME/has/$1"
}

# Chooses the version (the first whose source is available), and unpacks binaries, headers and source.
ferrite_fetch_server() {
    local version tried=()
    ferrite_server_known && ferrite_server_has core && return
    ferrite_apt_update
    for version in $(ferrite_server_candidates); do
        if ferrite_fetch_version "$version"; then
            printf '%s\n' "$version" >"$(ferrite_server_note)"
            ferrite_say "using MariaDB ${version#*:} (binaries and source of one version)"
            return
        fi
        ferrite_say "MariaDB ${version#*:} is offered, but its source or a package cannot be fetched: not used"
        tried+=("${version#*:}")
        rm -rf "$FERRITE_CACHE/mariadb-${version#*:}"
    done
    ferrite_die "no MariaDB $FERRITE_SERVER with both binaries and source is available here" \
        "tried: ${tried[*]:-none}" "check the network and the entries in /etc/apt"
}

# The version asked for; or the installed server's, then every offered one, newest first, then those of server_pins.txt.
ferrite_server_candidates() {
    local installed
    if [[ -n ${FERRITE_SERVER_PACKAGE:-} ]]; then
        printf '%s\n' "$FERRITE_SERVER_PACKAGE"
        return
    fi
    # shellcheck disable=SC2016
    installed=$(dpkg-query -W -f '${db:Status-Abbrev}${Version}\n' mariadb-server-core 2>/dev/null |
        sed -n 's/^ii *//p' || true)
    { [[ -z $installed ]] || printf '%s\n' "$installed"; ferrite_apt_versions mariadb-server-core
        ferrite_pinned_versions; } |
        grep -E "^([0-9]+:)?${FERRITE_SERVER//./\\.}\\." | awk '!seen[$0]++' || true
}

ferrite_fetch_version() {
    local version=$1 FERRITE_SERVER_PACKAGE=$1
    FERRITE_SERVER_HOME=$FERRITE_CACHE/mariadb-${version#*:}
    ferrite_fetch_source "$version" || return
    ferrite_unpack_packages "MariaDB ${version#*:}: server, client and headers" \
        mariadb-server-core mariadb-client-core mariadb-client libmariadbd-dev libmariadb-dev || return
    ferrite_server_done core
}

# shellcheck source=scripts/server_loader.sh
source "$FERRITE_ROOT/scripts/server_loader.sh"

ferrite_fetch_source() {
    local version=$1 home=$FERRITE_SERVER_HOME package from=$FERRITE_SERVER_HOME/download-source
    [[ -e $home/has/source ]] && return
    package=$(ferrite_apt_cache show "mariadb-server-core=$version" 2>/dev/null |
        awk '/^Source:/ { print $2; exit }' || true)
    rm -rf "$from"
    mkdir -p "$from" "$home/src" "$home/generated"
    FERRITE_LAST_LINES=0 ferrite_progress "fetching the source of MariaDB ${version#*:} (about 110 MB)" \
        ferrite_apt_fetch_source "$from" "${package:-mariadb}" "$version" || return
    ferrite_progress "unpacking the server's headers" ferrite_unpack_source "$from" "$home/src" || return
    # The server's own build makes this header by copying it.
    cp "$home/src/include/probes_mysql_nodtrace.h.in" "$home/generated/probes_mysql_nodtrace.h"
    rm -rf "$from"
    ferrite_server_done source
}

ferrite_unpack_source() {
    tar -xaf "$1"/*.orig.tar.* -C "$2" --strip-components=1 --wildcards \
        '*/VERSION' '*/include' '*/sql' '*/wsrep-lib' '*/storage/example'
}

# ferrite_unpack_packages WHAT PACKAGE...: downloads and unpacks packages of the server's version where they have it,
# then the libraries they need which the machine does not have.
ferrite_unpack_packages() {
    local what=$1 from=$FERRITE_SERVER_HOME/download
    shift
    rm -rf "$from"
    mkdir -p "$from" "$FERRITE_SERVER_HOME/root"
    ferrite_progress "fetching $what" ferrite_fetch_with_libraries "$from" "$@" || return
    ferrite_progress "unpacking $what" ferrite_unpack_all "$from" || return
    ! ferrite_server_is_newer || ferrite_wrap_programs "$FERRITE_SERVER_HOME/root/usr" || return
    rm -rf "$from"
}

ferrite_fetch_with_libraries() {
    local from=$1 name wanted=() seen=" "
    shift
    while (($# > 0)); do
        wanted=()
        for name in "$@"; do
            seen+="$name "
            wanted+=("$(ferrite_at_server_version "$name")")
        done
        ferrite_apt_fetch "$from" "${wanted[@]}" || return
        local more=()
        for name in $(ferrite_missing_libraries "$from"); do
            [[ $seen == *" $name "* ]] || more+=("$name")
        done
        set -- "${more[@]}"
    done
}

ferrite_at_server_version() {
    if ferrite_apt_versions "$1" | grep -qxF "$FERRITE_SERVER_PACKAGE" ||
        [[ -n $(ferrite_pin "$1" "$FERRITE_SERVER_PACKAGE") ]]; then
        printf '%s=%s\n' "$1" "$FERRITE_SERVER_PACKAGE"
    else
        printf '%s\n' "$1"
    fi
}

# The library packages that the downloaded packages depend on and that are not installed here; of a newer release all of
# them, the C library too. (Of -dev packages only headers are taken, which need none.)
ferrite_missing_libraries() {
    local deb clause name
    for deb in "$1"/*.deb; do
        [[ ${deb##*/} == *-dev_* ]] || dpkg-deb -f "$deb" Pre-Depends Depends
    done | sed -E 's/^(Pre-)?Depends://; s/\([^)]*\)//g; s/:any//g; s/,/\n/g' | tr -d ' \t' | sort -u |
        while IFS= read -r clause; do
            name=${clause%%|*}
            [[ ($name == lib* || $name == zlib1g) && $name != *-perl ]] || continue
            if ferrite_server_is_newer || ! ferrite_any_installed "${clause//|/ }"; then
                printf '%s\n' "$name"
            fi
        done
}

ferrite_any_installed() {
    local name
    for name in $1; do
        # shellcheck disable=SC2016
        [[ $(dpkg-query -W -f '${db:Status-Abbrev}' "$name" 2>/dev/null) == ii* ]] && return
    done
    return 1
}

ferrite_unpack_all() {
    local deb
    for deb in "$1"/*.deb; do
        case ${deb##*/} in
            libmariadbd-dev_*) # 40 MB of embedded server beside the headers
                dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$FERRITE_SERVER_HOME/root" ./usr/include
                ;;
            libmariadb-dev_*) # the client's headers would stand in the way of the server's
                dpkg-deb --fsys-tarfile "$deb" |
                    tar -x -C "$FERRITE_SERVER_HOME/root" --wildcards '*/libmysqlservices.a'
                ;;
            *) dpkg-deb -x "$deb" "$FERRITE_SERVER_HOME/root" ;;
        esac || return
    done
}
