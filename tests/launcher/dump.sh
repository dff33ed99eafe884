#!/usr/bin/env bash
# The server's own mariadb-dump with the arguments given.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
ferrite_ensure_server
ferrite_with_libs "$FERRITE_SERVER_PREFIX/bin/mariadb-dump" --no-defaults "$@"
