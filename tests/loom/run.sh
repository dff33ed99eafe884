#!/usr/bin/env bash
# Loom: the models of latches, epochs, the lock table, directory words, log reservation and commit publication, in every order of two or three threads.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
[[ ${1:-} != --ci ]] || shift
ferrite_need_cargo
cd "$FERRITE_ROOT"
# The models run for a short time, of which linking the whole program would take most.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0
export RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$FERRITE_ROOT/target}/loom"
exec cargo test --locked --quiet -p ferrite-sync -p ferrite-lock -p ferrite-redo -p ferrite-txn -p ferrite-store --release --lib loom_ "$@"
