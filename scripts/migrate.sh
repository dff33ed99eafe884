# shellcheck shell=bash
# `./ferrite migrate`: hands over to migrate/ferrite_migrate (Python, PyMySQL), with a server to talk to: the one that the
# options name, else the private one. `check --dump` gets a private server of its own, which is removed afterwards.
# shellcheck source=scripts/instance.sh
source "$FERRITE_ROOT/scripts/instance.sh"

cmd_migrate() {
    local word=${1:-}
    (($# == 0)) || shift
    migrate_python
    case $word in
        check | convert | back | status | forget) ;;
        *) migrate_exec ${word:+"$word"} "$@" ;;
    esac
    if migrate_has "--help|-h" "$@"; then
        migrate_exec "$word" "$@"
    elif [[ $word == check ]] && migrate_has "--dump|--dump=*" "$@"; then
        migrate_dump "$@"
    elif migrate_has "--socket|--socket=*|--host|--host=*|--defaults-file|--defaults-file=*" "$@"; then
        migrate_exec "$word" "$@"
    elif ferrite_is_installed && ! migrate_has "--dir|--dir=*" "$@"; then
        migrate_exec "$word" --socket=/run/mysqld/mysqld.sock "$@"
    else
        migrate_private "$word" "$@"
    fi
}

# The server of `./ferrite up`.
migrate_private() {
    local word=$1
    shift
    instance_defaults
    instance_take_dir "$@"
    instance_running || ferrite_die "no server runs on $DIR" \
        "start it with: $(instance_command up); or name another server with --socket, --host or --defaults-file"
    instance_recall
    instance_login
    migrate_exec "$word" "${LOGIN[@]/#--protocol=*/--host=127.0.0.1}" "${REST[@]}"
}

# migrate_has "OPTION|OPTION=*|..." WORDS...: one of the words is one of the options.
migrate_has() {
    local patterns=$1 word
    shift
    for word in "$@"; do
        [[ "|$patterns|" != *"|$word|"* && "|$patterns|" != *"|${word%%=*}=*|"* ]] || return 0
    done
    return 1
}

# Sets PYTHON, one with PyMySQL: that of an environment of our own, or the machine's. python3 alone cannot make an environment on
# Debian.
migrate_python() {
    ferrite_need_tool python3 python3
    if ferrite_is_installed; then
        PYTHON=python3
        python3 -c 'import pymysql' 2>/dev/null || ferrite_need_tool "no PyMySQL" python3-pymysql
        return
    fi
    python3 -c 'import ensurepip, venv' 2>/dev/null || ferrite_need_tool "no ensurepip" python3-venv
    ferrite_venv test "$FERRITE_ROOT/tests/lib/requirements.txt" ||
        ferrite_die "cannot make the Python environment of ferrite-migrate" "a network is needed once; pip's words are above"
    PYTHON=$VENV/bin/python3
}

migrate_exec() {
    migrate_environment migrate
    exec "$PYTHON" -m ferrite_migrate "$@"
}

# migrate_environment FOLDER: of the program's package; in ours all stand side by side.
migrate_environment() {
    export PYTHONPATH=$FERRITE_ROOT/$1 PYTHONDONTWRITEBYTECODE=1
    ! ferrite_is_installed || PYTHONPATH=$FERRITE_ROOT
}

# A dump is looked at by loading its definitions, without rows, into a server that is made for it: what that server refuses
# is refused, and nothing has to guess.
migrate_dump() {
    local status=0
    ! migrate_has "--socket|--socket=*|--host|--host=*|--defaults-file|--defaults-file=*" "$@" ||
        ferrite_die "check --dump looks at the file on a private server" "leave the options of a connection out"
    MIGRATE_HOME=$(mktemp -d)
    ferrite_at_end migrate_dump_ends
    chmod 755 "$MIGRATE_HOME"
    "$FERRITE_LAUNCHER" up --dir "$MIGRATE_HOME/data" --port "$(migrate_free_port)" --socket "$MIGRATE_HOME/s" -- \
        --skip-networking --default-storage-engine=InnoDB --innodb-buffer-pool-size=32M --ferrite-buffer-pool-size=32M >/dev/null ||
        ferrite_die "cannot start a private server for the dump"
    migrate_environment migrate
    "$PYTHON" -m ferrite_migrate check "--socket=$MIGRATE_HOME/s" "--user=$(account_me)" "$@" || status=$?
    exit "$status"
}

migrate_dump_ends() {
    "$FERRITE_LAUNCHER" down --dir "$MIGRATE_HOME/data" >/dev/null 2>&1 || true
    rm -rf -- "$MIGRATE_HOME"
}

migrate_free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
