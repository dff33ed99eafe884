# shellcheck shell=bash
# `./ferrite down`: a clean shutdown, waited for.
# shellcheck source=scripts/instance.sh
source "$FERRITE_ROOT/scripts/instance.sh"

cmd_down() {
    local ticks=0 noted=
    instance_defaults
    instance_take_dir "$@"
    ((${#REST[@]} == 0)) || ferrite_die "down: unknown argument '${REST[0]}'" "see ./ferrite help"
    if ! instance_running; then
        printf 'No server runs on %s.\n' "$DIR"
        return
    fi
    [[ $(cat "$PID_FILE" 2>/dev/null) != "$PID" ]] || noted=1
    ferrite_say "shutting down process $PID"
    kill -TERM "$PID" 2>/dev/null || ferrite_die "no permission to stop process $PID" "it belongs to $(stat -c %U "/proc/$PID")"
    while down_alive; do
        sleep 0.1
        ticks=$((ticks + 1))
        ((ticks % 50 != 0)) || ferrite_say "  ... still running; the last line of its log: $(tail -n 1 "$ERROR_LOG" | cut -c 1-120)"
        ((ticks < 6000)) || ferrite_die "process $PID has not ended after ten minutes" "see $ERROR_LOG"
    done
    if ! down_was_clean "$noted"; then
        tail -n 20 "$ERROR_LOG" | sed 's/^/    /' >&2
        ferrite_die "the server ended, but the shutdown was not clean" "the end of $ERROR_LOG is above"
    fi
    printf 'Ferrite is down, cleanly.\n'
}

# down_was_clean NOTED: a server takes its file PID_FILE away when all is closed, just before it says so in the language of
# lc_messages. Its words have to do where the file was not there (NOTED is empty). That InnoDB's shutdown completed says nothing of
# what is closed after it.
down_was_clean() {
    if [[ -n $1 ]]; then
        [[ $(cat "$PID_FILE" 2>/dev/null) != "$PID" ]]
    else
        tail -n 20 "$ERROR_LOG" | grep -q ': Shutdown complete$'
    fi
}

# A process that ended and waits for its parent to notice is not alive.
down_alive() {
    kill -0 "$PID" 2>/dev/null && ! grep -q '^State:[[:space:]]*Z' "/proc/$PID/status" 2>/dev/null
}
