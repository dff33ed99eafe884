#!/usr/bin/env bash
# Runs tests/backup with the arguments given; see --help. Then the launcher's own commands, in launcher.sh, and on a server that it did not make, in server.sh.
set -euo pipefail
# shellcheck source=tests/lib/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/env.sh"
ft_setup "$@"
ferrite_need_cargo
cargo build --manifest-path "$FERRITE_ROOT/Cargo.toml" --release --locked --quiet -p ferrite-tools
RELEASE="${CARGO_TARGET_DIR:-$FERRITE_ROOT/target}/release"
export FERRITE_BACKUP="$RELEASE/ferrite-backup" FERRITE_CHECK="$RELEASE/ferrite-check"
case " $* " in *" --help "* | *" -h "* | *" --only "*) exec "$FT_PYTHON" -m backup.main "$@" ;; esac
"$FT_PYTHON" -m backup.main "$@"
"$FERRITE_ROOT/tests/backup/launcher.sh" "$@"
# The short form leaves it out: the test of the packages takes and restores backups of a server that the launcher has not started.
case " $* " in *" --ci "*) exit 0 ;; esac
exec "$FERRITE_ROOT/tests/backup/server.sh"
