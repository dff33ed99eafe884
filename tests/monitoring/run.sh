#!/usr/bin/env bash
# Runs tests/monitoring with the arguments given; see --help.
set -euo pipefail
# shellcheck source=tests/lib/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/env.sh"
ft_setup "$@"
case " $* " in
    *" --ci "* | *" --help "* | *" -h "*) ;;
    *) ferrite_ensure_prometheus ;;
esac
export FERRITE_ROOT PYTHONPATH=$PYTHONPATH:$FERRITE_ROOT/top
case " $* " in
    *" --help "* | *" -h "*) ;;
    *) (cd "$FERRITE_ROOT/top" && "$FT_PYTHON" -m unittest discover --quiet --start-directory tests --top-level-directory .) ;;
esac
exec "$FT_PYTHON" -m monitoring.main "$@"
