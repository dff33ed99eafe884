# shellcheck shell=bash
# `./ferrite top`: ferrite-top (top/ferrite_top: Python, PyMySQL, curses) on the private server, or on the one that the
# options name.
# shellcheck source=scripts/migrate.sh
source "$FERRITE_ROOT/scripts/migrate.sh"

cmd_top() {
    migrate_python
    migrate_environment top
    if migrate_has "--socket|--socket=*|-S|--host|--host=*|-h|--defaults-file|--defaults-file=*|--help" "$@" ||
        { ferrite_is_installed && ! migrate_has "--dir|--dir=*" "$@"; }; then
        exec "$PYTHON" -m ferrite_top "$@"
    fi
    instance_defaults
    instance_take_dir "$@"
    instance_running || ferrite_die "no server runs on $DIR" \
        "start it with: $(instance_command up); or name another server with --socket, --host or --defaults-file"
    instance_recall
    instance_login
    exec "$PYTHON" -m ferrite_top --no-defaults "${LOGIN[@]/#--protocol=*/--host=127.0.0.1}" "${REST[@]}"
}
