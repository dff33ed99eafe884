#!/usr/bin/env bash
# Fuzz targets of all decoders: [--time SECONDS] each (default 10), [--target NAME], [--seed N].
#
# --coverage: the same targets under libFuzzer, which looks for inputs that reach new code; 60 s each. It needs the
# nightly compiler, and cargo-fuzz, which is installed into the cache. Inputs that reached something new are kept there
# too, so that the next run goes on with them. --input FILE: that one input again.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
# shellcheck source=scripts/nightly.sh
. "$FERRITE_ROOT/scripts/nightly.sh"
export FERRITE_FUZZ_SEED=1
COVERAGE="" SECONDS_EACH="" INPUT="" LAST_WORDS=40

fuzz_options() {
    while (($# > 0)); do
        case $1 in
            --time) SECONDS_EACH=${2:?--time wants seconds} && shift 2 ;;
            --target) export FERRITE_FUZZ_TARGET=${2:?--target wants a name} && shift 2 ;;
            --seed) FERRITE_FUZZ_SEED=${2:?--seed wants a number} && shift 2 ;;
            --coverage) COVERAGE=1 && shift ;;
            --input) COVERAGE=1 INPUT=$(readlink -f -- "${2:?--input wants a file}") && shift 2 ;;
            --ci) SECONDS_EACH=2 && shift ;;
            *)
                ferrite_die "unknown word: $1" \
                    "./ferrite test fuzz [--coverage] [--time SECONDS] [--target NAME] [--seed N] [--input FILE]"
                ;;
        esac
    done
    [[ -z $INPUT || -n ${FERRITE_FUZZ_TARGET:-} ]] || ferrite_die "--input wants --target too"
}

fuzz_drawn() {
    export FERRITE_FUZZ_SECONDS=${SECONDS_EACH:-10}
    cargo test --locked --release --quiet -p ferrite-fuzz --no-run
    # Memory without bound is a finding, too: the test gets 4 GiB.
    ulimit -v $((4 << 20))
    exec cargo test --locked --release --quiet -p ferrite-fuzz -- --nocapture decoders_take_any_bytes
}

# fuzz_build: sets DECODERS, the program with all targets in it, made for libFuzzer and AddressSanitizer.
fuzz_build() {
    local tools=$FERRITE_CACHE/cargo-tools into=${CARGO_TARGET_DIR:-$FERRITE_ROOT/target}/fuzz
    nightly_need rust-std
    PATH=$PATH:$tools/bin
    if ! cargo fuzz --version >/dev/null 2>&1 &&
        ! ferrite_progress "installing cargo-fuzz" cargo install --locked --root "$tools" cargo-fuzz; then
        printf 'skipped: cargo-fuzz is not here and cannot be fetched (cargo install --locked cargo-fuzz)\n'
        exit 77
    fi
    export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
    ferrite_progress "building the fuzz targets" \
        cargo +nightly fuzz build --fuzz-dir crates/ferrite-fuzz --features coverage --target-dir "$into" decoders ||
        ferrite_die "the fuzz targets cannot be built"
    DECODERS=$(compgen -G "$into/*/release/decoders")
}

# fuzz_one NAME: true if nothing was found.
fuzz_one() {
    local name=$1 status=0 kept=$FERRITE_CACHE/fuzz/$1 found=$FERRITE_CACHE/fuzz/found log
    mkdir -p "$kept" "$found"
    log=$(mktemp)
    FERRITE_FUZZ_TARGET=$name FERRITE_FUZZ_SEEDS=$kept "$DECODERS" "$kept" -max_total_time="${SECONDS_EACH:-60}" \
        -max_len=40000 -timeout=10 -rss_limit_mb=4096 -seed="$FERRITE_FUZZ_SEED" -print_final_stats=1 \
        -artifact_prefix="$found/$name-" >"$log" 2>&1 || status=$?
    if ((status == 0)); then
        awk -v name="$name" '/stat::number_of_executed_units/ { n = $2 } /DONE/ { cov = $4; corpus = $8 }
            END { printf "%s: %s inputs, %s edges, %s inputs kept\n", name, n, cov, corpus }' "$log"
    else
        printf '%s: FOUND\n' "$name"
        tail -n "$LAST_WORDS" "$log"
        printf 'again: ./ferrite test fuzz --target %s --input FILE\n' "$name"
    fi
    rm -f "$log"
    return "$status"
}

fuzz_coverage() {
    local name failed=()
    fuzz_build
    if [[ -n $INPUT ]]; then
        exec "$DECODERS" "$INPUT"
    fi
    for name in ${FERRITE_FUZZ_TARGET:-$(FERRITE_FUZZ_TARGET=list "$DECODERS")}; do
        fuzz_one "$name" || failed+=("$name")
    done
    ((${#failed[@]} == 0)) || ferrite_die "found something: ${failed[*]}"
}

fuzz_options "$@"
ferrite_need_cargo
cd "$FERRITE_ROOT"
if [[ -n $COVERAGE ]]; then
    fuzz_coverage
else
    fuzz_drawn
fi
