# shellcheck shell=bash
# `./ferrite env`: where things are, for scripts that are not bash.

cmd_env() {
    local name
    ferrite_ensure_server
    for name in FERRITE_ROOT FERRITE_CACHE FERRITE_SERVER FERRITE_SERVER_PACKAGE FERRITE_SERVER_VERSION FERRITE_SERVER_PREFIX FERRITE_SERVER_SHARE \
        FERRITE_MARIADBD FERRITE_SERVER_LIBS FERRITE_SRC FERRITE_SERVER_INCLUDES FERRITE_SERVICES_LIB; do
        printf "%s='%s'\n" "$name" "${!name}"
    done
    printf "HA_FERRITE_SO='%s'\n" "$(ferrite_plugin_path)"
}
