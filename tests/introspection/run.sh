#!/usr/bin/env bash
# Runs tests/introspection with the arguments given; see --help.
set -euo pipefail
# shellcheck source=tests/lib/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/env.sh"
ft_setup "$@"
FAULT_SHIM=$(ft_shim sync_fault.c)
export FAULT_SHIM
exec "$FT_PYTHON" -m introspection.main "$@"
