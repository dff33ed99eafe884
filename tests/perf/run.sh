#!/usr/bin/env bash
# Runs tests/perf with the arguments given; see --help.
set -euo pipefail
# shellcheck source=tests/lib/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/env.sh"
ft_setup "$@"
ferrite_ensure_sysbench
case "${1:-}" in
    waits | held | foreign | resize | travel)
        part=$1
        shift
        exec "$FT_PYTHON" -m "perf.$part" "$@"
        ;;
esac
exec "$FT_PYTHON" -m perf.floors "$@"
