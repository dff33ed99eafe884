# shellcheck shell=bash
# For tests of the launcher's commands: counts in PASSED and FAILED, which the script sets to 0 and judges by at its end.

# expect NAME CODE PATTERN COMMAND...: the exit code, and a pattern that stdout and stderr together contain.
expect() {
    local name=$1 code=$2 pattern=$3 status=0 output
    shift 3
    output=$("$@" 2>&1 </dev/null) || status=$?
    if [[ $status == "$code" ]] && grep -qE -- "$pattern" <<<"$output"; then
        PASSED=$((PASSED + 1))
    else
        FAILED=$((FAILED + 1))
        printf 'FAILED: %s\n  expected exit code %s and /%s/, got %s and:\n' "$name" "$code" "$pattern" "$status"
        printf '%s\n' "$output" | sed 's/^/    /'
    fi
}
