# shellcheck shell=bash
# The checks that need no server: format, lints, the crates' own tests, licences, scripts.
# Each is a stage of its own, so that a late one is heard even when an early one fails.

test_unit() {
    (($# == 0)) || { test_stage "cargo test $*" unit_cargo_test "$@" && return; }
    test_stage "rust format" unit_rust_format
    test_stage "rust lints" unit_rust_lints
    test_stage "rust tests" unit_cargo_test
    test_stage "structure" unit_structure
    test_stage "licences" unit_licences
    test_stage "advisories" unit_advisories
    test_stage "c++ format" unit_cpp_format
    test_stage "shell lints" unit_shell_lints
    test_stage "python lints" unit_python_lints
}

unit_cargo() {
    local word=$1
    shift
    ferrite_need_cargo
    cargo "$word" --manifest-path "$FERRITE_ROOT/Cargo.toml" "$@"
}

unit_rust_format() {
    unit_need_component rustfmt fmt
    unit_cargo fmt --all --check
}

unit_rust_lints() {
    unit_need_component clippy clippy
    unit_cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
}

unit_cargo_test() {
    if (($# > 0)) || ! unit_has python3; then
        unit_cargo test --workspace --locked --quiet "$@"
        return
    fi
    # All but examples in documentation, of which there are none; to look for them takes rustdoc half a minute.
    local built status=0
    built=$(mktemp)
    unit_cargo test --workspace --all-targets --locked --quiet --no-run --message-format=json-render-diagnostics >"$built" &&
        python3 "$FERRITE_ROOT/scripts/run_test_programs.py" <"$built" || status=$?
    rm -f "$built"
    return "$status"
}

unit_structure() {
    unit_has python3 || return
    python3 "$FERRITE_ROOT/scripts/check_structure.py" && python3 "$FERRITE_ROOT/scripts/check_assertions.py"
}

unit_need_component() {
    ferrite_need_cargo
    cargo "$2" --version >/dev/null 2>&1 || rustup component add "$1" ||
        ferrite_die "cargo has no $2" "run: rustup component add $1"
}

# What is linked into the plugin or shipped beside it may be used under the GPL, version 2. Of "A OR B" one must do,
# of "A AND B" both.
unit_licences() {
    unit_cargo tree --workspace --edges normal,build --prefix none --format '{l}|{p}' --locked |
        sed 's/ (\*)$//' | sort -u | awk -F'|' '
        BEGIN {
            n = split("GPL-2.0-only GPL-2.0-or-later MIT MIT-0 BSD-2-Clause BSD-3-Clause ISC Zlib 0BSD CC0-1.0 " \
                "Unlicense BSL-1.0 Unicode-3.0 Unicode-DFS-2016 NCSA", word, " ")
            for (i = 1; i <= n; i++) fits[word[i]] = 1
            fits["Apache-2.0 WITH LLVM-exception"] = 1
        }
        function all_fit(text,   part, n, i) {
            n = split(text, part, / AND /)
            for (i = 1; i <= n; i++) if (!(part[i] in fits)) return 0
            return 1
        }
        $2 == "" { next }
        {
            text = $1
            gsub(/\//, " OR ", text)
            # An OR within brackets is an alternative too: each reading of "(A OR B) AND C" is tried.
            if (match(text, /\([^()]* OR [^()]*\) AND /)) {
                tail = substr(text, RSTART + RLENGTH)
                head = substr(text, RSTART + 1, index(text, ")") - RSTART - 1)
                gsub(/ OR /, " AND " tail " OR ", head)
                text = head " AND " tail
            }
            gsub(/[()]/, "", text)
            n = split(text, choice, / OR /)
            for (i = 1; i <= n; i++) if (all_fit(choice[i])) { good++; next }
            printf "%s: licence \"%s\" does not go with GPL-2.0\n", $2, $1
            bad++
        }
        END { printf "%d packages, %d with a licence that does not fit\n", good + bad, bad; exit bad > 0 || good == 0 }'
}

# What is known of faults in the crates: deny.toml says what is asked. The tool is not fetched here (it takes minutes to
# build): where there is none, the licences above are what is checked; where its database cannot be had, all but faults.
unit_advisories() {
    unit_need_deny || return
    cd "$FERRITE_ROOT" || return
    cargo deny --log-level error --locked check --allow license-not-encountered bans licenses sources || return
    if ! cargo deny --log-level error --locked fetch db; then
        test_skip "the database of advisories cannot be fetched here: only licences, sources and versions were checked"
        return
    fi
    cargo deny --log-level error --locked --offline check advisories
}

unit_need_deny() {
    ferrite_need_cargo
    cargo deny --version >/dev/null 2>&1 ||
        test_skip "cargo-deny is not installed: only licences were checked (cargo install --locked cargo-deny)"
}

unit_cpp_format() {
    local wrong files=()
    mapfile -t files < <(compgen -G "$FERRITE_ROOT/plugin/*.cc"; compgen -G "$FERRITE_ROOT/plugin/*.h")
    ((${#files[@]} > 0)) || test_skip "no C++ source yet" || return
    unit_has clang-format || return
    wrong=$(clang-format --dry-run -Werror "${files[@]}" 2>&1 | grep -oE '^/[^:]+:[0-9]+' | sort -uV | head -n 40 || true)
    [[ -n $wrong ]] || return 0
    printf '%s\n' "these lines are not as clang-format wants them (clang-format -i does it):" "$wrong"
    return 1
}

unit_shell_lints() {
    local files=()
    unit_has shellcheck || return
    mapfile -t files < <(cd "$FERRITE_ROOT" && git ls-files '*.sh' ferrite .ci/run)
    (cd "$FERRITE_ROOT" && printf '%s\0' "${files[@]}" | xargs -0 -n 8 -P "$(nproc)" shellcheck -x)
}

unit_python_lints() {
    local ruff=(ruff)
    [[ -n $(cd "$FERRITE_ROOT" && git ls-files '*.py') ]] || test_skip "no Python yet" || return
    if ! command -v ruff >/dev/null; then
        unit_get_ruff || return
        ruff=("$VENV/bin/ruff")
    fi
    (cd "$FERRITE_ROOT" && "${ruff[@]}" check . && "${ruff[@]}" format --check .)
}

unit_get_ruff() {
    unit_has python3 || return
    ferrite_venv lint "$FERRITE_ROOT/scripts/lint-requirements.txt" || test_skip "ruff cannot be fetched here (python3-venv and a network are needed)"
}

# A missing lint program is a failure in continuous integration, and a skipped stage elsewhere.
unit_has() {
    command -v "$1" >/dev/null && return
    [[ -z ${FERRITE_CI:-} ]] || ferrite_die "$1 is not installed"
    test_skip "$1 is not installed"
}
