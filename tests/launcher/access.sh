#!/usr/bin/env bash
# A second account of the machine and a server that `./ferrite up` started, by root and by another account: it can read,
# write and run nothing of theirs through the socket, the port, the files or the process; and whoever is let in cannot
# make the server read or write outside its directory. Needs root, to be several accounts at once; else skipped (77).
set -euo pipefail

ROOT=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/../.." && pwd)
FERRITE_ROOT=$ROOT
# shellcheck source=scripts/lib.sh
source "$ROOT/scripts/lib.sh"
# shellcheck source=scripts/account.sh
source "$ROOT/scripts/account.sh"

if ((EUID != 0)); then
    echo "access: skipped, only root can be a second account"
    exit 77
fi

WORK=$(mktemp -d /var/tmp/ferrite-access.XXXXXXXX)
chmod 711 "$WORK"
OWNER=_ferrite_test
STRANGER=(setpriv "--reuid=$(id -u nobody)" "--regid=$(id -g nobody)" --clear-groups)
PORT=$((20000 + RANDOM % 10000))
PASSED=0 FAILED=0 WHO=

cleanup() {
    as_starter down --dir "$WORK/home/data" >/dev/null 2>&1 || true
    rm -rf "$WORK"
}

# What a server started by root, or by OWNER, is started and asked with.
as_starter() {
    if [[ $WHO == root ]]; then
        "$ROOT/ferrite" "$@"
    else
        (cd "$WORK" && umask 000 && account_as env HOME="$WORK/home" CARGO_TARGET_DIR="$WORK/target" FERRITE_CACHE="$WORK/cache" \
            HA_FERRITE_SO="$WORK/ha_ferrite.so" "$WORK/tree/ferrite" "$@")
    fi
}

good() { PASSED=$((PASSED + 1)); }
bad() {
    FAILED=$((FAILED + 1))
    printf 'FAILED (server of %s): %s\n' "$WHO" "$*"
}

# refused WHAT COMMAND...: the stranger's command fails.
refused() {
    local what=$1
    shift
    if (cd / && "${STRANGER[@]}" "$@" </dev/null) >"$WORK/answer" 2>&1; then
        bad "a stranger may $what:" "$(head -c 300 "$WORK/answer")"
    else
        good
    fi
}

# A copy of the launcher, the server's files and the plugin that every account can reach.
prepare() {
    local home=$WORK/cache/${FERRITE_SERVER_HOME##*/}
    account_ensure "$OWNER"
    mkdir -p "$home" "$WORK/tree" "$WORK/home" "$WORK/target"
    cp -a --link "$FERRITE_SERVER_ROOT" "$home/root" 2>/dev/null || cp -a "$FERRITE_SERVER_ROOT" "$home/"
    cp -a "$FERRITE_SERVER_HOME/has" "$home/"
    cp "$FERRITE_CACHE/server-version" "$WORK/cache/"
    cp -r "$ROOT/ferrite" "$ROOT/scripts" "$ROOT/Cargo.toml" "$WORK/tree/"
    install -m 755 "$HA_FERRITE_SO" "$WORK/ha_ferrite.so"
    chmod -R a+rX "$WORK/tree" "$WORK/cache/server-version" "$home/has"
    CLIENT=(env "LD_LIBRARY_PATH=${FERRITE_SERVER_LIBS//"$FERRITE_SERVER_ROOT"/"$home/root"}" "$home/root/usr/bin/mariadb"
        --no-defaults --connect-timeout=5)
}

try_files() {
    local data=$WORK/home/data name
    for name in "$data" "$data/.files" "$data/.tmp" "$data/mysql" "$data/#ferrite"; do
        refused "list $name" ls "$name"
        refused "write into $name" touch "$name/stranger"
    done
    for name in ferrite.err ferrite.instance ferrite.password ferrite.pid ibdata1 mysql/global_priv.MAD .files/secret; do
        refused "read $name" cat "$data/$name"
        # shellcheck disable=SC2016
        refused "write to $name" sh -c 'echo x >>"$1"' _ "$data/$name"
    done
    refused "read the server's environment" cat "/proc/$1/environ"
    refused "see the server's files" ls "/proc/$1/fd"
    refused "end the server" kill "$1"
}

try_connections() {
    local user host socket how password right
    # First that a stranger who knows the password gets in: what follows is refused by the server, not by the test.
    right=$(cat "$WORK/home/data/ferrite.password")
    if "${STRANGER[@]}" "${CLIENT[@]}" --protocol=tcp --host=127.0.0.1 --port="$PORT" --user=ferrite --password="$right" \
        -e 'SELECT 1' >/dev/null; then good; else bad "the password opens nothing"; fi
    for user in root "$WHO" "$OWNER" _ferrite ferrite nobody mysql app mariadb.sys ""; do
        for password in "" ferrite root; do
            how=("--user=$user" "--password=$password" -e 'SELECT LOAD_FILE("/etc/passwd"); SELECT 1')
            for host in 127.0.0.1 ::1 localhost; do
                refused "connect to $host as '$user', password '$password'" "${CLIENT[@]}" --protocol=tcp --host="$host" --port="$PORT" "${how[@]}"
            done
            for socket in "$WORK/home/s" "$WORK/home/data/ferrite.sock"; do
                refused "connect to $socket as '$user', password '$password'" "${CLIENT[@]}" --protocol=socket --socket="$socket" "${how[@]}"
            done
        done
    done
}

# Who is let in, with all privileges, stays within the directory.
try_inside() {
    local plugins what answer
    plugins=$(as_starter sql --dir "$WORK/home/data" -NBe 'SELECT @@plugin_dir')
    for what in "LOAD DATA INFILE '/etc/passwd' INTO TABLE test.lines" "SELECT 'x' INTO OUTFILE '$WORK/home/outside'" \
        "SELECT 'x' INTO DUMPFILE '$plugins/evil.so'" "SELECT 'x' INTO DUMPFILE '$WORK/home/data/mysql/evil'" \
        "LOAD DATA INFILE '$WORK/home/data/.files/../../outside' INTO TABLE test.lines"; do
        answer=$(as_starter sql --dir "$WORK/home/data" -e "$what" 2>&1 || true)
        if [[ $answer == *"ERROR 1290"* ]]; then good; else bad "not refused: $what: $answer"; fi
    done
    answer=$(as_starter sql --dir "$WORK/home/data" -NBe "SELECT LOAD_FILE('/etc/passwd') IS NULL" 2>&1 || true)
    if [[ $answer == 1 ]]; then good; else bad "LOAD_FILE reads /etc/passwd: $answer"; fi
}

# Nothing that the server loads or runs is the stranger's to change; started by root it is not the server's either.
try_programs() {
    local pid=$1 file uid words=("${STRANGER[@]}")
    for file in "$(readlink "/proc/$pid/exe")" $(sed -n 's|.* \(/.*/ha_ferrite.so\)$|\1|p' "/proc/$pid/maps" | sort -u); do
        refused "change $file" test -w "$file"
        refused "replace $file" test -w "$(dirname "$file")"
        [[ $WHO != root ]] || { words=("${STRANGER[@]}") && STRANGER=("${AS[@]}") && refused "(as the server) change $file" test -w "$file" &&
            refused "(as the server) replace $file" test -w "$(dirname "$file")" && STRANGER=("${words[@]}"); }
    done
    uid=$(awk '/^Uid:/ { print $2 $3 $4 $5 }' "/proc/$pid/status")
    if [[ $uid != 0000 ]]; then good; else bad "the server has root's rights"; fi
}

# Whatever the umask was.
check_modes() {
    local file
    for file in ferrite.err ferrite.instance ferrite.password; do
        if [[ $(stat -c %a "$WORK/home/data/$file") == 600 ]]; then good; else bad "$file: $(stat -c %a "$WORK/home/data/$file")"; fi
    done
    if [[ $(stat -c %a "$WORK/home/data") == 700 ]]; then good; else bad "the data directory is open"; fi
}

one_server() {
    local pid
    WHO=$1
    rm -rf "${WORK:?}/home"
    mkdir -m 755 "$WORK/home"
    if [[ $WHO == root ]]; then account_choose /; else account_switch "$OWNER" && chown "$OWNER:" "$WORK/home"; fi
    (umask 000 && as_starter up --dir "$WORK/home/data" --socket "$WORK/home/s" --port "$PORT") >"$WORK/up.log" 2>&1 ||
        { bad "up" "$(tail -n 20 "$WORK/up.log")" && return; }
    pid=$(cat "$WORK/home/data/ferrite.pid")
    as_starter sql --dir "$WORK/home/data" -e "CREATE TABLE test.lines (line TEXT); INSERT INTO test.lines VALUES ('secret');
        SELECT line INTO OUTFILE '$WORK/home/data/.files/secret' FROM test.lines; LOAD DATA INFILE '$WORK/home/data/.files/secret' INTO TABLE test.lines" ||
        bad "the owner has no access"
    check_modes
    try_files "$pid"
    try_connections
    try_inside
    try_programs "$pid"
    as_starter down --dir "$WORK/home/data" >/dev/null 2>&1 || bad "down"
}

trap cleanup EXIT
ferrite_ensure_server
[[ -n ${HA_FERRITE_SO:-} ]] || ferrite_build
prepare
# A plugin that another test has set is not what root's `up` builds: both servers take this one.
export HA_FERRITE_SO
one_server root
one_server "$OWNER"
printf 'access: %s refused or as it should be, %s failed\n' "$PASSED" "$FAILED"
((FAILED == 0))
