#!/usr/bin/env bash
# ThreadSanitizer and AddressSanitizer: the core's threaded tests, with the standard library built alike.
#
#   run.sh [thread|address] [--only CRATE]... [--test PART] [--limit SECONDS] [--jobs N]
#
# Without the first word both run, one after the other; --only takes crates by name (redo, engine ...). Each test is a
# process of its own with a time limit (each.py). Tests that say nothing there stand in skipped.txt, with the reason.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
# shellcheck source=scripts/nightly.sh
. "$FERRITE_ROOT/scripts/nightly.sh"
HERE=$FERRITE_ROOT/tests/sanitizers
# The crates with threads of their own.
EVERY=(sync io lock txn redo store buffer engine)
KINDS=(thread address) ONLY=() PASSED_ON=()

sanitizers_options() {
    while (($# > 0)); do
        case $1 in
            thread | address) KINDS=("$1") && shift ;;
            --only) ONLY+=("${2:?--only wants a crate}") && shift 2 ;;
            --test | --limit | --jobs) PASSED_ON+=("$1" "${2:?$1 wants a value}") && shift 2 ;;
            --ci) shift ;;
            *)
                ferrite_die "unknown word: $1" \
                    "./ferrite test sanitizers [thread|address] [--only CRATE]... [--test PART] [--limit SECONDS] [--jobs N]"
                ;;
        esac
    done
    ((${#ONLY[@]} > 0)) || ONLY=("${EVERY[@]}")
}

# sanitizers_cargo KIND: builds the tests and says where they are, for each.py.
sanitizers_cargo() {
    local host packages=("${ONLY[@]/#/--package=ferrite-}")
    host=$(rustc -vV | sed -n 's/^host: //p')
    CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$FERRITE_ROOT/target}/sanitizer-$1 RUSTFLAGS="-Zsanitizer=$1" \
        cargo +nightly test --locked --quiet -Zbuild-std --target "$host" "${packages[@]}" --lib --tests \
        --no-run --message-format=json-render-diagnostics
}

sanitizers_options "$@"
nightly_need rust-src
cd "$FERRITE_ROOT"
# crc32c and zstd bring assembler and C that a sanitizer does not see; they are sequential.
export TSAN_OPTIONS="${TSAN_OPTIONS:-halt_on_error=1 suppressions=$HERE/thread.supp}"
# gcc keeps an array of zstd's that is constant and local in read-only data, and says at its end that it is gone.
export CFLAGS="${CFLAGS:-} -fno-sanitize-address-use-after-scope"
# Leaks are looked for nowhere: the tests' own threads and statics outlive them.
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=0}"
built=$(mktemp)
trap 'rm -f "$built"' EXIT
status=0
for kind in "${KINDS[@]}"; do
    printf '%s sanitizer\n' "$kind"
    sanitizers_cargo "$kind" >"$built" || ferrite_die "the tests cannot be built for the $kind sanitizer"
    python3 "$HERE/each.py" --kind "$kind" ${PASSED_ON[@]+"${PASSED_ON[@]}"} <"$built" || status=1
done
exit "$status"
