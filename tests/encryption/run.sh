#!/usr/bin/env bash
# Runs tests/encryption with the arguments given; see --help.
set -euo pipefail
# shellcheck source=tests/lib/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/env.sh"
ft_setup "$@"
ferrite_need_cargo
ferrite_ensure_key_management
cargo build --manifest-path "$FERRITE_ROOT/Cargo.toml" --release --locked --quiet -p ferrite-tools
RELEASE="${CARGO_TARGET_DIR:-$FERRITE_ROOT/target}/release"
export FERRITE_BACKUP="$RELEASE/ferrite-backup" FERRITE_CHECK="$RELEASE/ferrite-check" FERRITE_REWIND="$RELEASE/ferrite-rewind"
exec "$FT_PYTHON" -m encryption.main "$@"
