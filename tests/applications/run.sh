#!/usr/bin/env bash
# Runs tests/applications with the arguments given; see --help.
set -euo pipefail
# shellcheck source=tests/lib/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/env.sh"
ft_setup "$@"
exec "$FT_PYTHON" -m applications.main "$@"
