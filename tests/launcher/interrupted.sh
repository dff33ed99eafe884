#!/usr/bin/env bash
# An interrupt while a script waits for a program that answers the interrupt itself and exits as if nothing had been: the
# script ends all the same, and does at its end what it has to.
set -euo pipefail
ROOT=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd)
if [[ ${1:-} != inside ]]; then
    # A group of its own, and a background job of a shell would not hear the interrupt.
    exec python3 -c 'import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.setsid(); os.execv(sys.argv[1], sys.argv[1:])' \
        "$ROOT/tests/launcher/interrupted.sh" inside
fi
# shellcheck source=scripts/lib.sh
source "$ROOT/scripts/lib.sh"
ferrite_at_end 'echo ended'
python3 -c 'import os, signal, sys, time
signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
os.killpg(0, signal.SIGINT)
time.sleep(60)'
echo "went on"
