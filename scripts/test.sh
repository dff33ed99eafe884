# shellcheck shell=bash
# `./ferrite test`: runs the stages, shows how long each took, closes with "N passed, N failed".
#
# A stage is a function or the run.sh of a folder under tests/. It passes with exit code 0; 77 means that it was
# skipped, and why stands in its output. Each run.sh understands --ci: the short version, for continuous integration.
# shellcheck source=scripts/test_unit.sh
source "$FERRITE_ROOT/scripts/test_unit.sh"

PASSED=0 FAILED=0 SKIPPED=0
FAILED_STAGES=()
# What failed stages printed, for the end of a long log: one file for all of them.
FAILED_OUTPUT=

cmd_test() {
    local what=${1:-ci} FERRITE_SERVER_ASKED=${FERRITE_SERVER:-}
    (($# == 0)) || shift
    case $what in
        ci) test_ci ;;
        all) test_all "$@" ;;
        unit) test_unit "$@" ;;
        sim) test_stage sim test_sim "$@" ;;
        mutants) test_stage mutants test_mutants "$@" ;;
        tools)
            test_suite launcher
            test_suite tools "$@"
            ;;
        mtr | crash | diff) test_suite "$what" "$@" ;;
        *)
            [[ $what =~ ^[a-z]+$ && -x $FERRITE_ROOT/tests/$what/run.sh ]] ||
                ferrite_die "there are no '$what' tests" "there are: unit, sim, mutants, mtr, crash, diff, tools, all, and the folders of tests/"
            test_suite "$what" "$@"
            ;;
    esac
    test_close
}

# The built plugin comes first: every suite needs it, and a broken build should fail once, and early.
test_ci() {
    test_stage build test_build
    test_unit
    test_stage sim test_sim_ci
    test_suite launcher
    local suite
    # migrate and backup wait for servers more than they compute.
    test_beside migrate "$FERRITE_ROOT/tests/migrate/run.sh" --ci
    for suite in loom tools introspection monitoring encryption snapshots; do
        test_suite "$suite" --ci
    done
    test_beside_ends
    # That experiments work is tested here, not what they measure: they wait for servers to start and to end.
    test_beside sysbench "$FERRITE_ROOT/tests/sysbench/run.sh" --ci
    test_suite bench --ci
    test_beside_ends
    # Software that nobody here wrote: it waits for its downloads, too.
    test_beside applications "$FERRITE_ROOT/tests/applications/run.sh" --ci
    test_suite suites --ci
    test_suite neighbours --ci
    test_beside_ends
    # mtr keeps one processor busy, diff and schedules less than one.
    test_beside mtr "$FERRITE_ROOT/tests/mtr/run.sh" --ci
    test_suite diff --ci
    test_suite schedules --ci
    test_beside_ends
    test_suite corners --ci
    test_beside backup "$FERRITE_ROOT/tests/backup/run.sh" --ci
    test_suite crash --ci
    test_suite package --ci
    test_beside_ends
    # Memory and files, not time.
    test_beside soak "$FERRITE_ROOT/tests/soak/run.sh" --ci
    [[ -n ${FERRITE_SERVER_ASKED:-} ]] || test_stage "build for 11.8" test_on 11.8 test_build
    test_beside_ends
    [[ -n ${FERRITE_SERVER_ASKED:-} ]] || test_other_server 11.8
}

# The plugin for another server version, which is built: the shortest look at it, for what is ours alone has been tested above.
test_other_server() {
    local series=$1
    test_beside "mtr on $series" test_on "$series" "$FERRITE_ROOT/tests/mtr/run.sh" storage_engine
    test_stage "diff on $series" test_on "$series" "$FERRITE_ROOT/tests/diff/run.sh" --statements 2000
    test_stage "corners on $series" test_on "$series" "$FERRITE_ROOT/tests/corners/run.sh" \
        --only server_versions --only alter_online
    test_stage "migrate on $series" test_on "$series" "$FERRITE_ROOT/tests/migrate/run.sh" --ci \
        --only every_kind_there_and_back
    test_stage "crash on $series" test_on "$series" "$FERRITE_ROOT/tests/crash/run.sh" --rounds 6 --longest 1.5
    test_beside_ends
}

test_on() {
    export FERRITE_SERVER=$1
    shift
    unset FERRITE_SERVER_PACKAGE HA_FERRITE_SO FERRITE_SERVER_READY
    "$@"
}

test_all() {
    test_stage build test_build
    test_unit
    test_stage sim test_sim
    test_suite launcher
    local suite
    for suite in loom tools introspection monitoring neighbours migrate applications suites sysbench bench mtr diff corners schedules backup snapshots encryption crash package soak perf; do
        test_suite "$suite" "$@"
    done
    test_stage "perf foreign" "$FERRITE_ROOT/tests/perf/run.sh" foreign
}

# test_stage NAME COMMAND...: one line before, one after, and a tally.
test_stage() {
    local name=$1 started=$SECONDS status=0
    shift
    printf '\n=== %s\n' "$name"
    # A process of its own: what a stage sets or how it dies touches no other stage.
    if [[ -z ${FERRITE_CI:-} ]]; then
        ("$@") </dev/null || status=$?
        test_count "$name" "$status" "$((SECONDS - started))"
        return
    fi
    local output
    output=$(mktemp)
    (set -o pipefail && ("$@") </dev/null 2>&1 | tee "$output") || status=$?
    test_keep "$name" "$status" "$output"
    test_count "$name" "$status" "$((SECONDS - started))"
}

# test_keep NAME STATUS FILE: the lines that tell why a stage failed are kept for test_close; the file goes.
# A log of continuous integration is shown from its end, and of a long one nothing else.
test_keep() {
    if (($2 != 0 && $2 != 77)); then
        FAILED_OUTPUT=${FAILED_OUTPUT:-$(mktemp)}
        {
            printf '\n--- %s, from what it printed:\n' "$1"
            grep -a -A 12 -E 'FAILED|panicked|Traceback|unexpected|error(\[|:)' "$3" | cut -c 1-2000 | head -n 60 || true
            printf -- '--- and its end:\n'
            tail -n 12 "$3" | cut -c 1-2000
        } >>"$FAILED_OUTPUT"
    fi
    rm -f "$3"
}

# test_count NAME STATUS SECONDS: a stage has ended.
test_count() {
    case $2 in
        0)
            PASSED=$((PASSED + 1))
            printf '=== %s: passed, %s s\n' "$1" "$3"
            ;;
        77)
            SKIPPED=$((SKIPPED + 1))
            printf '=== %s: skipped\n' "$1"
            ;;
        *)
            FAILED=$((FAILED + 1))
            FAILED_STAGES+=("$1")
            printf '=== %s: FAILED (exit code %s), %s s\n' "$1" "$2" "$3"
            ;;
    esac
}

# test_beside NAME COMMAND...: a stage that runs beside those after it, until test_beside_ends shows what it printed.
# Its time is that of the stages beside it, if they take longer.
test_beside() {
    BESIDE_NAME=$1 BESIDE_STARTED=$SECONDS
    BESIDE_OUTPUT=$(mktemp)
    shift
    printf '\n=== %s: started beside the next ones\n' "$BESIDE_NAME"
    ("$@") </dev/null >"$BESIDE_OUTPUT" 2>&1 &
    BESIDE_PID=$!
    # An interrupted run leaves no servers behind.
    trap 'kill "$BESIDE_PID" 2>/dev/null || true' EXIT
}

test_beside_ends() {
    local status=0
    wait "$BESIDE_PID" || status=$?
    trap - EXIT
    printf '\n=== %s\n' "$BESIDE_NAME"
    cat "$BESIDE_OUTPUT"
    test_keep "$BESIDE_NAME" "$status" "$BESIDE_OUTPUT"
    test_count "$BESIDE_NAME" "$status" "$((SECONDS - BESIDE_STARTED))"
}

test_suite() {
    local suite=$1
    shift
    if [[ -x $FERRITE_ROOT/tests/$suite/run.sh ]]; then
        test_stage "$suite" "$FERRITE_ROOT/tests/$suite/run.sh" "$@"
    else
        test_stage "$suite" test_skip "tests/$suite/run.sh is not written yet"
    fi
}

test_skip() {
    printf 'skipped: %s\n' "$*"
    return 77
}

test_build() {
    ferrite_build
    printf 'built %s\n' "$HA_FERRITE_SO"
}

# The simulator's own profile: as fast as a release, but panics unwind and sums are checked.
test_sim() {
    ferrite_need_cargo
    cargo run --manifest-path "$FERRITE_ROOT/Cargo.toml" --profile sim --locked --quiet -p ferrite-sim -- "$@"
}

# Every commit has fresh seeds of its own, and a run that fails can be repeated from the commit alone.
test_sim_ci() {
    local commit
    commit=$(git -C "$FERRITE_ROOT" rev-parse --short=8 HEAD 2>/dev/null) || commit=1
    test_sim --ci --from "$((16#$commit))"
}

# Deliberate faults in the core, one at a time: the simulator must catch each.
test_mutants() {
    ferrite_need_cargo
    cargo run --manifest-path "$FERRITE_ROOT/Cargo.toml" --profile sim --locked --quiet -p ferrite-sim \
        --features mutations -- --table "$FERRITE_ROOT/docs/internals/mutants.md" --mutants "$@"
}

test_close() {
    if [[ -n $FAILED_OUTPUT ]]; then
        cat "$FAILED_OUTPUT"
        rm -f "$FAILED_OUTPUT"
    fi
    printf '\n'
    ((SKIPPED == 0)) || printf 'skipped: %s\n' "$SKIPPED"
    ((FAILED == 0)) || printf 'failed: %s\n' "${FAILED_STAGES[*]}"
    printf 'time: %s s\n' "$SECONDS"
    printf '%s passed, %s failed\n' "$PASSED" "$FAILED"
    ((FAILED == 0))
}
