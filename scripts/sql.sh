# shellcheck shell=bash
# `./ferrite sql`: the mariadb client on the private server.
# shellcheck source=scripts/instance.sh
source "$FERRITE_ROOT/scripts/instance.sh"

cmd_sql() {
    instance_defaults
    instance_take_dir "$@"
    instance_running || ferrite_die "no server runs on $DIR" "start it with: $(instance_command up)"
    instance_recall
    ferrite_ensure_server
    instance_login
    [[ -z $FERRITE_SERVER_LIBS ]] || export LD_LIBRARY_PATH=$FERRITE_SERVER_LIBS${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    exec "$FERRITE_SERVER_PREFIX/bin/mariadb" --no-defaults "${LOGIN[@]}" "${REST[@]}"
}
