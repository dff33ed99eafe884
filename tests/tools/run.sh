#!/usr/bin/env bash
# Runs tests/tools with the arguments given; see --help.
set -euo pipefail
# shellcheck source=tests/lib/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/env.sh"
ft_setup "$@"
ferrite_need_cargo
cargo build --manifest-path "$FERRITE_ROOT/Cargo.toml" --release --locked --quiet -p ferrite-tools
FERRITE_CHECK="${CARGO_TARGET_DIR:-$FERRITE_ROOT/target}/release/ferrite-check"
export FERRITE_CHECK
exec "$FT_PYTHON" -m tools.main "$@"
