#!/usr/bin/env bash
# Runs tests/applications with the arguments given; see --help.
set -euo pipefail
# shellcheck source=tests/lib/env.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/env.sh"
ft_setup "$@"
# shellcheck source=scripts/apt.sh
. "$FERRITE_ROOT/scripts/apt.sh"
APPLICATIONS="$FERRITE_CACHE/applications"
export APPLICATIONS
mkdir -p "$APPLICATIONS"

# Each package is downloaded and unpacked once, and never installed.
for package in kea-admin zabbix-server-mysql roundcube-core icingaweb2-common pdns-backend-mysql; do
    [[ -e $APPLICATIONS/$package ]] && continue
    ferrite_apt_update
    work=$(mktemp -d "$APPLICATIONS/work-XXXXXX")
    if ferrite_apt_fetch "$work" "$package"; then
        mkdir "$work/root"
        dpkg-deb -x "$work"/*.deb "$work/root"
        mv "$work/root" "$APPLICATIONS/$package"
    else
        printf '%s cannot be downloaded: left out\n' "$package"
    fi
    rm -rf "$work"
done
exec "$FT_PYTHON" -m applications.main "$@"
