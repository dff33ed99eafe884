# shellcheck shell=bash
# The nightly compiler, for what the stable one cannot do: Miri and sanitizers. Sourced by their run.sh.

# nightly_need COMPONENT...: the toolchain with these components; skips the stage (77) when they cannot be had.
nightly_need() {
    local component
    ferrite_need_cargo
    if ! command -v rustup >/dev/null; then
        printf 'skipped: this needs the nightly compiler, which rustup installs; rustup is not here\n'
        exit 77
    fi
    if ! cargo +nightly --version >/dev/null 2>&1 && ! rustup toolchain install nightly --profile minimal; then
        printf 'skipped: the nightly compiler is not here and cannot be fetched (rustup toolchain install nightly)\n'
        exit 77
    fi
    for component in "$@"; do
        rustup component list --toolchain nightly --installed | grep -q "^$component" && continue
        if ! rustup component add "$component" --toolchain nightly; then
            printf 'skipped: the nightly compiler has no %s (rustup component add %s --toolchain nightly)\n' \
                "$component" "$component"
            exit 77
        fi
    done
}
