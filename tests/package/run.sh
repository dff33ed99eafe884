#!/usr/bin/env bash
# Runs tests/package with the arguments given; see --help. Needs root: a clean Debian of the server's release is laid out in a
# directory, and packages are installed and removed in it.
set -euo pipefail
# shellcheck source=tests/lib/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/env.sh"
# shellcheck source=scripts/apt.sh
. "$FERRITE_ROOT/scripts/apt.sh"

skip() {
    printf 'skipped: %s\n' "$*"
    exit 77
}

# Sets CLEAN_ROOT, the archive of a Debian with what the server's packages depend on and what ferrite-tools recommends, and
# SERVER_DEBS, the server's packages.
clean_root() {
    SERVER_DEBS=$FERRITE_SERVER_HOME/debs-tools
    CLEAN_ROOT=$FERRITE_SERVER_HOME/clean-root-tools.tar
    [[ -e $FERRITE_SERVER_HOME/has/clean-root-tools ]] || ferrite_locked clean-root clean_root_make
}

clean_root_make() {
    ! ferrite_server_has clean-root-tools || return 0
    rm -rf -- "$SERVER_DEBS"
    mkdir -p -- "$SERVER_DEBS"
    ferrite_apt_update
    # The program that lays out a data directory asks one of the client's for its settings.
    ferrite_progress "fetching the server's packages" ferrite_apt_fetch "$SERVER_DEBS" \
        {mariadb-common,mariadb-server-core,mariadb-client-core,mariadb-client,mariadb-backup,libmariadb3}"=$FERRITE_SERVER_PACKAGE"
    sed 's/^Types:.*/Types: deb/; /^deb-src/d' "$FERRITE_APT"/sources.list.d/* >"$SERVER_DEBS/sources"
    ferrite_progress "laying out a clean Debian $FERRITE_RELEASE_NUMBER" mmdebstrap --mode=root --variant=essential \
        --include="$(clean_root_needs),python3,python3-pymysql,passwd" --skip=check/empty "$FERRITE_RELEASE" "$CLEAN_ROOT" "$SERVER_DEBS/sources"
    ferrite_server_done clean-root-tools
}

# What the server depends on, but for its own packages.
clean_root_needs() {
    local deb
    for deb in "$SERVER_DEBS"/*.deb; do dpkg-deb -f "$deb" Depends; done |
        sed -E 's/\([^)]*\)//g; s/,/\n/g' | tr -d ' ' | grep -vE '^(lib)?mariadb' | sort -u | paste -sd ,
}

case " $* " in *" --help "* | *" -h "*) ft_venv && PYTHONPATH="$FERRITE_ROOT/tests" exec "$FT_PYTHON" -m package.main "$@" ;; esac
((EUID == 0)) || skip "packages can be installed, even into a directory, only by root"
unshare --mount mount -t tmpfs none /mnt 2>/dev/null || skip "nothing can be mounted here: a clean root needs /proc"
ft_setup "$@"
ferrite_need_cargo
cargo build --manifest-path "$FERRITE_ROOT/Cargo.toml" --release --locked --quiet -p ferrite-tools
FERRITE_TOOLS="$(ferrite_target_dir)/release"
ferrite_need_tool mmdebstrap mmdebstrap
clean_root
export FERRITE_TOOLS CLEAN_ROOT SERVER_DEBS FERRITE_ROOT
exec "$FT_PYTHON" -m package.main "$@"
