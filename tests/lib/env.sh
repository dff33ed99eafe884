# Sourced by every tests/*/run.sh: finds the server through scripts/lib.sh, makes the private Python
# environment, and exports the FT_* variables that tests/lib/places.py reads.
# shellcheck shell=bash

FT_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
# shellcheck source=/dev/null
. "$FT_ROOT/scripts/lib.sh"

# ft_venv: a private environment with PyMySQL, kept in the cache.
ft_venv() {
    local dir="$FT_CACHE/test-venv"
    if [ ! -x "$dir/bin/python3" ] || ! "$dir/bin/python3" -c 'import pymysql' 2>/dev/null; then
        echo "Making the tests' Python environment ..." >&2
        rm -rf "$dir"
        python3 -m venv "$dir" || { echo "python3 -m venv failed: install python3-venv" >&2; return 1; }
        "$dir/bin/pip" install --quiet 'pymysql>=1.1,<2' || { echo "pip could not fetch PyMySQL" >&2; return 1; }
    fi
    FT_PYTHON="$dir/bin/python3"
}

# ft_wants_ferrite ARGS...: whether the arguments leave Ferrite among the engines.
ft_wants_ferrite() {
    local word previous=""
    for word in "$@"; do
        case "$previous $word" in
            "--engine ferrite" | *" --engine=ferrite") return 0 ;;
            "--engines "*ferrite* | *" --engines="*ferrite*) return 0 ;;
            "--engine "* | *" --engine="* | "--engines "* | *" --engines="*) return 1 ;;
        esac
        previous="$word"
    done
    return 0
}
