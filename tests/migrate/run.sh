#!/usr/bin/env bash
# Runs the unit tests of migrate/, then tests/migrate with the arguments given; see --help.
set -euo pipefail
# shellcheck source=tests/lib/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/env.sh"
ft_setup "$@"
export PYTHONPATH=$PYTHONPATH:$FERRITE_ROOT/migrate FERRITE_ROOT
case " $* " in
    *" --help "* | *" -h "* | *" --list "* | *" --only "*) ;;
    *) (cd "$FERRITE_ROOT/migrate" && "$FT_PYTHON" -m unittest discover --quiet --start-directory tests --top-level-directory .) ;;
esac
exec "$FT_PYTHON" -m migrate.main "$@"
