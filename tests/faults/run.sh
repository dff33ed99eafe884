#!/usr/bin/env bash
# Runs tests/faults with the arguments given; see --help.
set -euo pipefail
# shellcheck source=tests/lib/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/env.sh"
ft_setup "$@"
FAULT_SHIM="$FERRITE_CACHE/sync_fault.so"
export FAULT_SHIM
"${CC:-cc}" -shared -fPIC -O1 -Wall -Werror -o "$FAULT_SHIM.$$" "$FERRITE_ROOT/tests/faults/sync_fault.c" -ldl
mv "$FAULT_SHIM.$$" "$FAULT_SHIM"
exec "$FT_PYTHON" -m faults.main "$@"
