#!/usr/bin/env bash
# Runs tests/suites with the arguments given; see --help.
set -euo pipefail
# shellcheck source=tests/lib/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/env.sh"
ft_setup "$@"
ferrite_venv suites "$FERRITE_ROOT/tests/suites/requirements.txt" || {
    echo "skipped: the suites' Python environment cannot be made (python3-venv and a network are needed)"
    exit 77
}
export FERRITE_SUITES_PYTHON=$VENV/bin/python3
exec "$FT_PYTHON" -m suites.main "$@"
