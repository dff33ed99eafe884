#!/usr/bin/env bash
# Runs tests/faults with the arguments given; see --help.
set -euo pipefail
# shellcheck source=tests/lib/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/env.sh"
ft_setup "$@"
FAULT_SHIM=$(ft_shim sync_fault.c)
DDL_SHIM=$(ft_shim ddl_fault.c)
CLOCK_SHIM=$(ft_shim clock_fault.c)
export FAULT_SHIM DDL_SHIM CLOCK_SHIM
exec "$FT_PYTHON" -m faults.main "$@"
