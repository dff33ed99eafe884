# shellcheck shell=bash
# The build: the Rust core as a static library, the handler around it, one shared object for the server to load.
#
# ferrite_build sets HA_FERRITE_SO. The shared object stands in a directory of its own, fit for --plugin-dir; each server
# series has one.

ferrite_target_dir() { printf '%s\n' "${CARGO_TARGET_DIR:-$FERRITE_ROOT/target}"; }
ferrite_plugin_out() {
    local suffix=
    ! ferrite_server_is_other || suffix=-$FERRITE_SERVER
    printf '%s/plugin%s\n' "$(ferrite_target_dir)" "$suffix"
}
ferrite_plugin_path() { printf '%s/lib/ha_ferrite.so\n' "$(ferrite_plugin_out)"; }

ferrite_build() {
    ferrite_need_cargo
    ferrite_need_tool g++ g++ make make
    ferrite_ensure_server
    ferrite_progress "building the core (cargo)" ferrite_build_core ||
        ferrite_die "the core does not build" "the compiler's messages are above"
    ferrite_have_plugin_sources || ferrite_die "plugin/ holds no C++ source yet, there is nothing to load into a server"
    ferrite_progress "building the handler for MariaDB $FERRITE_SERVER_VERSION" ferrite_build_plugin ||
        ferrite_die "the handler does not build" "the compiler's messages are above"
    HA_FERRITE_SO=$(ferrite_plugin_path)
    export HA_FERRITE_SO
}

# ferrite_ensure_tools WHAT [WORDS...]: WHAT is said of them; the words are cargo's, to build not all.
ferrite_ensure_tools() {
    local what=$1
    shift
    ferrite_need_cargo
    ferrite_progress "building $what" \
        cargo build --manifest-path "$FERRITE_ROOT/Cargo.toml" --release --locked -p ferrite-tools "$@" ||
        ferrite_die "$what: the build fails" "the compiler's messages are above"
    # shellcheck disable=SC2034 # read by the files that source this one
    FERRITE_TOOLS_BIN=$(ferrite_target_dir)/release
}

ferrite_have_plugin_sources() { compgen -G "$FERRITE_ROOT/plugin/*.cc" >/dev/null; }

ferrite_build_core() {
    cargo build --manifest-path "$FERRITE_ROOT/Cargo.toml" --profile server --locked -p ferrite-capi
}

# make runs only when one process builds: two would write the same objects.
ferrite_build_plugin() {
    local out fd
    out=$(ferrite_plugin_out)
    mkdir -p "$out"
    exec {fd}>"$out/build.lock"
    flock "$fd"
    make --no-print-directory -C "$FERRITE_ROOT/plugin" -j "$(nproc)" \
        OUT="$out" CORE="$(ferrite_target_dir)/server/libferrite_capi.a" \
        SERVER_INCLUDES="$FERRITE_SERVER_INCLUDES" SERVICES="$FERRITE_SERVICES_LIB"
}

cmd_build() {
    (($# == 0)) || ferrite_die "build takes no arguments" "see ./ferrite help"
    ferrite_build
    printf '%s\n' "$HA_FERRITE_SO"
}
