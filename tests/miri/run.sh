#!/usr/bin/env bash
# Miri: the unit tests of types and tree (pages, records, page operations), interpreted, with every access checked.
# Arguments go to `cargo miri test`.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
# shellcheck source=scripts/nightly.sh
. "$FERRITE_ROOT/scripts/nightly.sh"
[[ ${1:-} != --ci ]] || shift
nightly_need miri rust-src
export MIRIFLAGS="${MIRIFLAGS:--Zmiri-disable-isolation}"
cd "$FERRITE_ROOT"
exec cargo +nightly miri test --locked -p ferrite-types -p ferrite-tree --lib "$@"
