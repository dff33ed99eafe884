# shellcheck shell=bash
# Sourced by every tests/*/run.sh: finds the server through scripts/lib.sh, makes the private Python
# environment, and exports what tests/lib/places.py reads.

FERRITE_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
# shellcheck source=scripts/lib.sh
. "$FERRITE_ROOT/scripts/lib.sh"

# ft_venv: a private environment with what requirements.txt names, kept in the cache; sets FT_PYTHON.
ft_venv() {
    ferrite_venv test "$FERRITE_ROOT/tests/lib/requirements.txt" ||
        ferrite_die "cannot make the tests' Python environment" "python3-venv and a network are needed; pip's words are above"
    # shellcheck disable=SC2034 # read by the files that source this one
    FT_PYTHON=$VENV/bin/python3
}

# ft_engines ARGS...: the engines that --engine or --engines name; Ferrite when none is named.
ft_engines() {
    local word previous=""
    for word in "$@"; do
        case "$previous" in --engine | --engines) printf '%s\n' "$word" && return ;; esac
        case "$word" in --engine=* | --engines=*) printf '%s\n' "${word#*=}" && return ;; esac
        previous="$word"
    done
    printf 'ferrite\n'
}

# ft_setup ARGS...: everything a test needs to start servers. A plugin named in HA_FERRITE_SO is taken as it is.
ft_setup() {
    local engines
    engines=$(ft_engines "$@")
    ferrite_ensure_server
    case "$engines" in
        *ferrite*) [[ -n ${HA_FERRITE_SO:-} ]] || ferrite_build ;;
    esac
    case "$engines" in
        *rocksdb*) ferrite_ensure_rocksdb ;;
    esac
    ft_venv
    export FERRITE_CACHE
    export PYTHONPATH="$FERRITE_ROOT/tests" PYTHONDONTWRITEBYTECODE=1 HA_FERRITE_SO="${HA_FERRITE_SO:-}"
}

# ft_shim SOURCE: the library made from a file of tests/faults, for LD_PRELOAD.
ft_shim() {
    local made="$FERRITE_CACHE/${1%.c}.so"
    "${CC:-cc}" -shared -fPIC -O1 -Wall -Werror -o "$made.$$" "$FERRITE_ROOT/tests/faults/$1" -ldl
    mv "$made.$$" "$made"
    printf '%s\n' "$made"
}
