#!/usr/bin/env bash
# Runs tests/neighbours with the arguments given; see --help. The programs come from the Debian release of this machine, whichever
# server is tested, since perl loads only libraries that were made for it; they are unpacked in the cache, and never installed.
set -euo pipefail
# shellcheck source=tests/lib/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/env.sh"
# shellcheck source=scripts/apt.sh
. "$FERRITE_ROOT/scripts/apt.sh"

PACKAGES=(haproxy mydumper percona-toolkit libdbd-mysql-perl libdbi-perl libterm-readkey-perl)

# Sets FERRITE_NEIGHBOURS, the directory of the programs; empty where they cannot be had.
neighbours() {
    ferrite_apt_choose
    FERRITE_NEIGHBOURS=$FERRITE_CACHE/neighbours-$FERRITE_APT_FROM
    [[ -e $FERRITE_NEIGHBOURS/packages ]] || ferrite_locked cache neighbours_fetch || FERRITE_NEIGHBOURS=
}

# In a process of its own: what is said of the release there holds for these packages alone.
neighbours_fetch() (
    [[ ! -e $FERRITE_NEIGHBOURS/packages ]] || exit 0
    export FERRITE_RELEASE='' FERRITE_RELEASE_NUMBER=0 FERRITE_SERVER_PACKAGE=none
    debs=$FERRITE_NEIGHBOURS/debs
    rm -rf -- "$FERRITE_NEIGHBOURS" && mkdir -p -- "$debs" && ferrite_apt_update || exit
    here=()
    for name in "${PACKAGES[@]}"; do
        [[ -z $(ferrite_apt_versions "$name") ]] || here+=("$name")
    done
    ((${#here[@]} > 0)) || exit
    ferrite_progress "fetching ${here[*]}" ferrite_fetch_with_libraries "$debs" "${here[@]}" || exit
    for deb in "$debs"/*.deb; do
        dpkg-deb -x "$deb" "$FERRITE_NEIGHBOURS/root" || exit
    done
    for name in "${here[@]}"; do
        # shellcheck disable=SC2016 # dpkg-deb's own names
        dpkg-deb --show --showformat '${Package} ${Version}\n' "$debs/$name"_*.deb || exit
    done >"$FERRITE_NEIGHBOURS/packages.part"
    rm -rf -- "$debs"
    mv -- "$FERRITE_NEIGHBOURS/packages.part" "$FERRITE_NEIGHBOURS/packages"
)

# The server before this one, from which a data directory is brought over: where its files are, in variables with OLD_ in front.
neighbours_old() {
    local series=$1
    (
        unset FERRITE_SERVER_PACKAGE FERRITE_SERVER_READY HA_FERRITE_SO
        export FERRITE_SERVER=$series
        HA_FERRITE_SO=${OLD_HA_FERRITE_SO:-}
        ferrite_ensure_server
        [[ -n $HA_FERRITE_SO ]] || ferrite_build >&2
        for name in FERRITE_CACHE FERRITE_SERVER_PREFIX FERRITE_MARIADBD FERRITE_SERVER_LIBS FERRITE_SERVER_VERSION HA_FERRITE_SO; do
            printf 'export OLD_%s=%q\n' "$name" "${!name}"
        done
    )
}

# Whether a scenario is among those that are asked for.
asked() {
    [[ " $* " != *" --ci "* && (" $* " != *" --only "* || " $* " == *"${ASKED:?}"*) ]]
}

ft_setup "$@"
case " $* " in
    *" --help "* | *" -h "*) ;;
    *)
        neighbours
        if ferrite_server_is_other && ASKED=upgrade asked "$@"; then
            # shellcheck disable=SC2153 # server_files.sh sets it
            old=$(neighbours_old "${FERRITE_SERIES[0]%% *}")
            eval "$old"
        fi
        if ASKED=drill asked "$@"; then
            ferrite_need_cargo
            cargo build --manifest-path "$FERRITE_ROOT/Cargo.toml" --release --locked --quiet -p ferrite-tools
        fi
        FERRITE_TOOLS=$(ferrite_target_dir)/release
        export FERRITE_TOOLS
        ;;
esac
export FERRITE_ROOT FERRITE_NEIGHBOURS=${FERRITE_NEIGHBOURS:-}
exec "$FT_PYTHON" -m neighbours.main "$@"
