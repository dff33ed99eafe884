# shellcheck shell=bash
# What every script of the launcher shares: messages, locks, tools, options, and where things are.
#
# Test and benchmark scripts may source this file. It offers:
#   ferrite_ensure_server      the private server, its client programs, headers and source; sets the FERRITE_SERVER_*
#                              variables listed in server_files.sh
#   ferrite_ensure_test_suite  mariadb-test beside it; sets FERRITE_MYSQL_TEST
#   ferrite_ensure_rocksdb     the MyRocks plugin beside it; sets FERRITE_ROCKSDB_SO
#   ferrite_ensure_sysbench    sysbench beside it; sets FERRITE_SYSBENCH and FERRITE_SYSBENCH_LUA
#   ferrite_ensure_backup_tool mariadb-backup beside it; sets FERRITE_MARIADB_BACKUP
#   ferrite_ensure_galera      the Galera library beside it; sets FERRITE_GALERA
#   ferrite_ensure_prometheus  Prometheus and mysqld_exporter beside it; sets FERRITE_PROMETHEUS, their directory
#   ferrite_build              builds the plugin; sets HA_FERRITE_SO
#   ferrite_with_libs CMD...   runs a server, client or sysbench binary with the libraries that came with it
#   ferrite_venv NAME REQ      a private Python environment of pinned packages; sets VENV
#   ferrite_need_tool CMD PKG  makes sure that a program is there
#   ferrite_ensure_tools WHAT  builds ferrite-backup, ferrite-check and ferrite-rewind; sets FERRITE_TOOLS_BIN, where they are

FERRITE_ROOT=${FERRITE_ROOT:-$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)}
FERRITE_LAUNCHER=${FERRITE_LAUNCHER:-$FERRITE_ROOT/ferrite}
FERRITE_CACHE=${FERRITE_CACHE:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/ferrite}

# Whether this is the package ferrite-tools, which has no sources, and not a checkout.
ferrite_is_installed() { [[ ! -e $FERRITE_ROOT/Cargo.toml ]]; }

ferrite_say() { printf 'ferrite: %s\n' "$*" >&2; }
ferrite_warn() { printf 'ferrite: %s\n' "$*" >&2; }
ferrite_die() {
    printf 'ferrite: error: %s\n' "$1" >&2
    shift
    (($# == 0)) || printf 'ferrite:   %s\n' "$@" >&2
    exit 1
}

# ferrite_locked NAME COMMAND...: one process at a time in the cache; the others wait and say so.
ferrite_locked() {
    local name=$1 fd status=0
    shift
    mkdir -p "$FERRITE_CACHE" 2>/dev/null ||
        ferrite_die "cannot create the cache directory $FERRITE_CACHE" "set FERRITE_CACHE to a directory you may write to"
    exec {fd}>"$FERRITE_CACHE/$name.lock"
    if ! flock -n "$fd"; then
        ferrite_say "waiting for another ./ferrite that is busy with the $name"
        flock "$fd"
    fi
    "$@" || status=$?
    exec {fd}>&-
    return "$status"
}

# ferrite_at_end COMMAND: runs it when the script ends, by an interrupt, too. Bash alone goes on after an interrupt if the
# program that it waits for answers the signal itself and exits as usual, which a client of the server does.
ferrite_at_end() {
    # shellcheck disable=SC2064
    trap "$1" EXIT
    trap 'exit 130' INT
}

# ferrite_progress WHAT COMMAND...: runs a long command, its output in a log, with a sign of life every ten seconds.
# FERRITE_VERBOSE=1 shows the output instead; FERRITE_LAST_LINES is how much of it a failure shows.
ferrite_progress() {
    local what=$1 log pid traps ticks=0 status=0
    shift
    ferrite_say "$what"
    if [[ -n ${FERRITE_VERBOSE:-} ]]; then
        "$@" >&2
        return
    fi
    log=$(mktemp)
    # A process group of its own, so that an interrupt here ends all that it started.
    set -m
    "$@" >"$log" 2>&1 </dev/null &
    pid=$!
    set +m
    traps=$(trap -p INT TERM)
    # shellcheck disable=SC2064
    trap "kill -TERM -- -$pid 2>/dev/null; rm -f '$log'; exit 130" INT TERM
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.1
        ticks=$((ticks + 1))
        ((ticks % 100 != 0)) || ferrite_say "  ... $((ticks / 10)) s: $(tail -n 1 "$log" | tr -d '\r' | cut -c 1-100)"
    done
    wait "$pid" || status=$?
    trap - INT TERM
    eval "$traps"
    if ((status != 0 && ${FERRITE_LAST_LINES:-30} > 0)); then
        ferrite_warn "failed: $what"
        grep -E -A 12 '^error|(: |^)(fatal )?error[:[]' "$log" | head -n 60 | sed 's/^/    /' >&2
        ferrite_warn "the last lines of its output:"
        tail -n "${FERRITE_LAST_LINES:-30}" "$log" | sed 's/^/    /' >&2
    fi
    rm -f "$log"
    return "$status"
}

# ferrite_need_tool COMMAND PACKAGE [COMMAND PACKAGE]...: present, or installed by root, or asked for. A file's path
# may stand in the command's place.
ferrite_need_tool() {
    local missing=()
    while (($# > 1)); do
        command -v "$1" >/dev/null || [[ -e $1 ]] || missing+=("$2")
        shift 2
    done
    ((${#missing[@]} == 0)) && return
    ! ferrite_is_installed || ferrite_die "these packages are missing: ${missing[*]}" "install them: apt install ${missing[*]}"
    if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
        ferrite_die "these packages are missing and only root may install them: ${missing[*]}" \
            "ask for: apt-get install ${missing[*]}"
    fi
    ferrite_progress "installing ${missing[*]}" ferrite_apt_install "${missing[@]}" ||
        ferrite_die "cannot install ${missing[*]}" "install them by hand and try again"
}

ferrite_apt_install() {
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y --no-install-recommends "$@" && return
    apt-get update
    apt-get install -y --no-install-recommends "$@"
}

# ferrite_venv NAME REQUIREMENTS: sets VENV, a private Python environment with exactly what the file names; makes it if it
# is not there. Each content of the file has an environment of its own.
ferrite_venv() {
    VENV=$FERRITE_CACHE/$1-venv-$(sha256sum <"$2" | cut -c 1-12)
    [[ -e $VENV/complete ]] || ferrite_locked "$1-venv" ferrite_venv_make "$VENV" "$2"
}

# From wheels with the hashes that the file names, and from nothing else.
ferrite_venv_make() {
    [[ ! -e $1/complete ]] || return 0
    ferrite_say "making the Python environment ${1##*/}"
    rm -rf -- "$1"
    python3 -m venv "$1" >&2 &&
        "$1/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: --no-deps -r "$2" >&2 &&
        touch "$1/complete"
}

# ferrite_need_cargo: cargo on the PATH, not older than Cargo.toml says.
ferrite_need_cargo() {
    local wanted have
    command -v cargo >/dev/null || PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
    command -v cargo >/dev/null ||
        ferrite_die "cargo, the Rust build tool, is not installed" "install Rust with rustup, then try again"
    wanted=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' "$FERRITE_ROOT/Cargo.toml" | head -n 1)
    have=$(cargo --version | awk '{print $2}')
    ferrite_version_at_least "$have" "${wanted:-1.85}" ||
        ferrite_die "cargo $have is too old, Ferrite needs ${wanted:-1.85} or newer" "run: rustup update stable"
}

ferrite_version_at_least() {
    [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]
}

# ferrite_need_value OPTION [VALUE...]: an option that needs a value has one.
ferrite_need_value() {
    if (($# < 2)) || [[ -z $2 || $2 == -- ]]; then
        ferrite_die "$1 needs a value" "see ./ferrite help"
    fi
}

# ferrite_take_server WORDS...: takes --server out of the words before a "--", leaves the others in WORDS.
ferrite_take_server() {
    WORDS=()
    while (($# > 0)); do
        case $1 in
            --server)
                ferrite_need_value "$@"
                export FERRITE_SERVER=$2
                shift
                ;;
            --server=*)
                ferrite_need_value --server "${1#--server=}"
                export FERRITE_SERVER=${1#--server=}
                ;;
            --)
                WORDS+=("$@")
                break
                ;;
            *) WORDS+=("$1") ;;
        esac
        shift
    done
    [[ -z ${FERRITE_SERVER:-} ]] || ferrite_choose_server ""
}

if ferrite_is_installed; then
    # shellcheck source=scripts/installed.sh
    source "$FERRITE_ROOT/scripts/installed.sh"
else
    # shellcheck source=scripts/server_files.sh
    source "$FERRITE_ROOT/scripts/server_files.sh"
    # shellcheck source=scripts/build.sh
    source "$FERRITE_ROOT/scripts/build.sh"
fi
