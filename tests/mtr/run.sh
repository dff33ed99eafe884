#!/usr/bin/env bash
# Runs the server's own test suites on an engine; see --help.
set -euo pipefail
# shellcheck source=tests/lib/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/env.sh"
ft_setup "$@"
ferrite_ensure_test_suite
ferrite_need_tool perl perl patch patch
# shellcheck source=scripts/account.sh
. "$FERRITE_ROOT/scripts/account.sh"
if ((EUID == 0)); then
    export FT_ACCOUNT=_ferrite_test
    account_ensure "$FT_ACCOUNT"
fi
exec "$FT_PYTHON" -m mtr.main "$@"
