# shellcheck shell=bash
# `./ferrite status`: what runs on the directory, or what another server says of itself. Exit code 3 when nothing runs there.
# shellcheck source=scripts/server.sh
source "$FERRITE_ROOT/scripts/server.sh"

cmd_status() {
    instance_defaults
    status_take_server "$@"
    if server_is_meant; then
        [[ -z $STATUS_STRAY ]] || ferrite_die "status: unknown argument '$STATUS_STRAY'" "see ./ferrite help"
        server_connect
        server_status
        return
    fi
    instance_take_dir "$@"
    ((${#REST[@]} == 0)) || ferrite_die "status: unknown argument '${REST[0]}'" "see ./ferrite help"
    if ! instance_running; then
        printf 'not running  (%s)\n' "$DIR"
        exit 3
    fi
    ferrite_ensure_server
    instance_recall
    printf 'process  %s\nport     %s\nsocket   %s\ndata     %s\n' "$PID" "$PORT" "$SOCKET" "$DIR"
    printf 'uptime   %s\n' "$(status_uptime)"
    printf 'server   %s\n' "$(instance_query 'SELECT VERSION()' || echo 'does not answer')"
    printf 'engine   %s\n' "$(status_engine)"
}

status_take_server() {
    STATUS_STRAY=
    while (($# > 0)); do
        case $1 in
            --socket | --defaults-file)
                ferrite_need_value "$@"
                server_set "$1" "$2"
                shift
                ;;
            --socket=* | --defaults-file=*) server_set "${1%%=*}" "${1#*=}" ;;
            --dir | --dir=*) INSTANCE_ASKED=1 ;;
            *) STATUS_STRAY=$1 ;;
        esac
        shift
    done
}

status_uptime() {
    local s
    s=$(($(date +%s) - $(stat -c %Y "/proc/$PID")))
    printf '%d d %02d:%02d:%02d' $((s / 86400)) $((s / 3600 % 24)) $((s / 60 % 60)) $((s % 60))
}

status_engine() {
    instance_query "SELECT CONCAT('Ferrite ', COALESCE(PLUGIN_AUTH_VERSION, PLUGIN_VERSION), ', ', PLUGIN_STATUS)
        FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'FERRITE'" | grep . || echo 'not loaded'
}
