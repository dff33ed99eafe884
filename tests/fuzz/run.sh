#!/usr/bin/env bash
# Fuzz targets of all decoders: [--time SECONDS] each (default 10), [--target NAME], [--seed N].
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"
export FERRITE_FUZZ_SECONDS=10 FERRITE_FUZZ_SEED=1
while (($# > 0)); do
    case $1 in
        --time) FERRITE_FUZZ_SECONDS=${2:?--time wants seconds} && shift 2 ;;
        --target) export FERRITE_FUZZ_TARGET=${2:?--target wants a name} && shift 2 ;;
        --seed) FERRITE_FUZZ_SEED=${2:?--seed wants a number} && shift 2 ;;
        --ci) FERRITE_FUZZ_SECONDS=2 && shift ;;
        *) ferrite_die "unknown word: $1" "./ferrite test fuzz [--time SECONDS] [--target NAME] [--seed N]" ;;
    esac
done
ferrite_need_cargo
cd "$FERRITE_ROOT"
cargo test --locked --release --quiet -p ferrite-fuzz --no-run
# Memory without bound is a finding, too: the test gets 4 GiB.
ulimit -v $((4 << 20))
exec cargo test --locked --release --quiet -p ferrite-fuzz -- --nocapture decoders_take_any_bytes
