#!/usr/bin/env bash
# Entry point of the benchmarks: finds the server, the engines asked for and the load generators, then hands over to Python.
# An engine that cannot be had does not stop the others: its reason goes along in FB_MISSING_<ENGINE>.
set -euo pipefail
# shellcheck source=tests/lib/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../tests/lib/env.sh"

bench_engines() {
    local word previous="" engines="ferrite,innodb,rocksdb"
    for word in "$@"; do
        [[ $previous != --engines ]] || engines=$word
        [[ $word != --engines=* ]] || engines=${word#*=}
        previous=$word
    done
    printf '%s\n' "$engines"
}

# bench_try ENGINE COMMAND...: what cannot be had is noted, not fatal. An interrupt is not a missing engine.
bench_try() {
    local name=FB_MISSING_${1^^} log status=0
    log=$(mktemp)
    { ("${@:2}") 2>&1 1>&3 | tee "$log" >&2 || status=${PIPESTATUS[0]}; } 3>&1
    ((status < 128)) || exit "$status"
    if ((status != 0)); then
        export "$name=$(grep -m 1 'error:' "$log" | sed 's/^ferrite: error: //' || true)"
        [[ -n ${!name} ]] || export "$name=it cannot be had here, see the messages above"
    fi
    rm -f "$log"
}

bench_places() {
    local engines
    engines=$(bench_engines "$@")
    ferrite_ensure_server
    ferrite_ensure_sysbench
    if [[ $engines == *ferrite* && -z ${HA_FERRITE_SO:-} ]]; then
        bench_try ferrite ferrite_build
        HA_FERRITE_SO=$(ferrite_plugin_path)
        export HA_FERRITE_SO
    fi
    [[ $engines != *rocksdb* ]] || { bench_try rocksdb ferrite_ensure_rocksdb; }
    [[ ${1:-} != go-tpc ]] || bench_build_go_tpc
    bench_try ceiling bench_build_ceiling
    export FB_CEILING_SO=$FERRITE_CACHE/bench-ceiling-$FERRITE_SERVER/ha_ceiling.so
    export FERRITE_CACHE
}

# bench_build_go_tpc: built from source by Go's own client, checksums verified, once. A program apart, never linked.
bench_build_go_tpc() {
    local dir=$FERRITE_CACHE/bench-go-tpc module=github.com/pingcap/go-tpc
    FB_GO_TPC=$dir/go-tpc
    export FB_GO_TPC
    [[ ! -x $FB_GO_TPC ]] || return 0
    ferrite_need_tool go golang-go
    rm -rf "$dir.new"
    mkdir -p "$dir.new"
    printf 'module bench\ngo 1.21\n' >"$dir.new/go.mod"
    printf '//go:build tools\n\npackage bench\n\nimport _ "%s/cmd/go-tpc"\n' "$module" >"$dir.new/tools.go"
    (cd "$dir.new" && go mod edit "-require=$module@v1.0.5") || return
    ferrite_progress "building go-tpc" go -C "$dir.new" build -mod=mod -o go-tpc "$module/cmd/go-tpc" ||
        ferrite_die "go-tpc cannot be built" "the experiment tpcc runs without it"
    rm -rf "$dir"
    mv "$dir.new" "$dir"
}

bench_build_ceiling() {
    [[ -f $FERRITE_ROOT/bench/ceiling/ha_ceiling.cc ]] || return 1
    ferrite_need_tool g++ g++ make make
    ferrite_locked bench-ceiling make --no-print-directory -s -C "$FERRITE_ROOT/bench/ceiling" \
        OUT="$FERRITE_CACHE/bench-ceiling-$FERRITE_SERVER" SERVER_INCLUDES="$FERRITE_SERVER_INCLUDES" SERVICES="$FERRITE_SERVICES_LIB" >&2
}

main() {
    export FERRITE_ROOT PYTHONPATH="$FERRITE_ROOT/bench:$FERRITE_ROOT/tests" PYTHONDONTWRITEBYTECODE=1
    ferrite_need_tool python3 python3
    ft_venv
    case ${1:-help} in
        selftest)
            cd "$FERRITE_ROOT/bench"
            exec "$FT_PYTHON" -m unittest discover -s tests -t . "${@:2}"
            ;;
        list | compare | report | table | summary | help | -h | --help) ;;
        *) bench_places "$@" ;;
    esac
    exec "$FT_PYTHON" -m ferrite_bench "$@"
}

main "$@"
