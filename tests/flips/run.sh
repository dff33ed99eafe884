#!/usr/bin/env bash
# Every byte of a small database turned in turn: it is reported, or makes no difference. `--ci`: drawn bytes only.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
ferrite_need_cargo
if [[ ${1:-} == --ci ]]; then shift; else export FERRITE_FLIPS=${FERRITE_FLIPS:-all}; fi
cd "$FERRITE_ROOT"
exec cargo test --locked --release --quiet -p ferrite-tools --test flips -- --nocapture "$@"
