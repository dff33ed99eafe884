# shellcheck shell=bash
# `./ferrite bench NAME ...`: hands over to bench/run.sh.

cmd_bench() {
    local runner
    for runner in "$FERRITE_ROOT/bench/run.sh" "$FERRITE_ROOT/bench/run.py"; do
        [[ -f $runner ]] || continue
        case $runner in
            *.py)
                ferrite_need_tool python3 python3
                exec python3 "$runner" "$@"
                ;;
            *) exec "$runner" "$@" ;;
        esac
    done
    ferrite_die "there is no benchmark yet" "bench/ holds no runner"
}
