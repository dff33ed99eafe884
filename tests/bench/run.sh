#!/usr/bin/env bash
# The bench lab itself: its own tests, then experiments at their smallest size, so that they cannot rot.
# Without arguments every experiment that needs nothing further; --ci a handful; or the names of some.
set -euo pipefail
FERRITE_ROOT=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)

bench_names() {
    if (($# == 0)); then
        "$FERRITE_ROOT/ferrite" bench list | grep -v 'not part of all' | awk '{print $1}'
    elif [[ $1 == --ci ]]; then
        printf '%s\n' queue group-commit point-read big-transaction recovery-time
    else
        printf '%s\n' "$@"
    fi
}

if [[ ${1:-} == --help ]]; then
    echo "usage: ./ferrite test bench [--ci | EXPERIMENT...]"
    exit 0
fi
# Built once, not before each experiment.
HA_FERRITE_SO=${HA_FERRITE_SO:-$("$FERRITE_ROOT/ferrite" build | tail -n 1)}
export HA_FERRITE_SO
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$FERRITE_ROOT/ferrite" bench selftest
for name in $(bench_names "$@"); do
    "$FERRITE_ROOT/ferrite" bench "$name" --smoke --engines ferrite,innodb --out "$out/$name"
done
