#!/usr/bin/env bash
# ThreadSanitizer and AddressSanitizer: the core's threaded tests, with the standard library built alike.
# `thread` or `address` as the first word runs one of them; further arguments go to `cargo test`.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
# shellcheck source=scripts/nightly.sh
. "$FERRITE_ROOT/scripts/nightly.sh"
[[ ${1:-} != --ci ]] || shift
kinds=(thread address)
case ${1:-} in
    thread | address)
        kinds=("$1")
        shift
        ;;
esac
nightly_need rust-src
cd "$FERRITE_ROOT"
host=$(rustc -vV | sed -n 's/^host: //p')
target=${CARGO_TARGET_DIR:-$FERRITE_ROOT/target}
# The crates with threads of their own. Fixed seeds: a report should come again.
crates=(-p ferrite-sync -p ferrite-io -p ferrite-lock -p ferrite-txn -p ferrite-redo -p ferrite-store -p ferrite-engine)
# These measure time, which a sanitizer stretches.
timed=(--skip scale_tests:: --skip a_hundred_thousand_pages_come_back_fast)
# crc32c and zstd bring assembler and C that a sanitizer does not see; they are sequential.
export TSAN_OPTIONS="${TSAN_OPTIONS:-halt_on_error=1 suppressions=$FERRITE_ROOT/tests/sanitizers/thread.supp}"
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"
for kind in "${kinds[@]}"; do
    printf '%s sanitizer\n' "$kind"
    CARGO_TARGET_DIR=$target/sanitizer-$kind RUSTFLAGS="-Zsanitizer=$kind" \
        cargo +nightly test --locked --quiet -Zbuild-std --target "$host" "${crates[@]}" --lib --tests --no-fail-fast "$@" -- "${timed[@]}"
done
