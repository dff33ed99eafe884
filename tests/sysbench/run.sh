#!/usr/bin/env bash
# Runs tests/sysbench with the arguments given; see --help.
set -euo pipefail
# shellcheck source=tests/lib/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/env.sh"
ft_setup "$@"
ferrite_ensure_sysbench
exec "$FT_PYTHON" -m sysbench.main "$@"
