#!/usr/bin/env bash
# Runs tests/faults with the arguments given; see --help.
set -euo pipefail
# shellcheck source=tests/lib/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/env.sh"
ft_setup "$@"
shim() {  # shim SOURCE: the library made from it
    local made="$FERRITE_CACHE/${1%.c}.so"
    "${CC:-cc}" -shared -fPIC -O1 -Wall -Werror -o "$made.$$" "$FERRITE_ROOT/tests/faults/$1" -ldl
    mv "$made.$$" "$made"
    echo "$made"
}
FAULT_SHIM=$(shim sync_fault.c)
DDL_SHIM=$(shim ddl_fault.c)
export FAULT_SHIM DDL_SHIM
exec "$FT_PYTHON" -m faults.main "$@"
