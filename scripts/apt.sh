# shellcheck shell=bash
# A private apt: the machine's own package sources, with source packages added, in a state directory of ours.
# It looks up and downloads; it installs nothing and changes nothing on the machine. Each release has one of its own: for
# another than this machine's, the machine's entries with the other release's name in them, signed by the same keyring.

# ferrite_apt_choose: sets FERRITE_APT, the state directory, and FERRITE_APT_FROM, the release of the machine's entries.
ferrite_apt_choose() {
    # shellcheck disable=SC1091
    FERRITE_APT_FROM=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
    FERRITE_APT=$FERRITE_CACHE/apt
    FERRITE_APT_TO=
    # Nobody has chosen a server: the packages wanted are those of this machine.
    ferrite_apt_is_debian && [[ ${FERRITE_RELEASE:-$FERRITE_APT_FROM} != "$FERRITE_APT_FROM" ]] || return 0
    FERRITE_APT_TO=$FERRITE_RELEASE
    FERRITE_APT+=-$FERRITE_RELEASE
}

ferrite_apt_is_debian() {
    # shellcheck disable=SC1091
    [[ $(. /etc/os-release && printf '%s' "${ID:-}") == debian ]]
}

ferrite_apt_get() { apt-get -q -c "$FERRITE_APT/apt.conf" "$@"; }
ferrite_apt_cache() { apt-cache -c "$FERRITE_APT/apt.conf" "$@"; }

# Copies the configured sources in either format, each binary entry with its source twin. With a word, only the
# entries that speak of a suite beginning with it; with a second word, that stands in its place.
ferrite_apt_copy_sources() {
    local suite=$1 other=${2:-$1} file name to=$FERRITE_APT/sources.list.d
    rm -rf "$to"
    mkdir -p "$to"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [[ -r $file ]] || continue
        sed -nE 's/^[[:space:]]*deb(-src)?[[:space:]]/ /p' "$file" |
            awk -v suite="$suite" -v other="$other" '
                { options = match($0, /^ *\[[^]]*\]/) ? substr($0, 1, RLENGTH) : ""
                  split(substr($0, length(options) + 1), f, " ") }
                suite == "" || index(f[2], suite) == 1 {
                    line = options " " f[1] " " other substr(f[2], length(suite) + 1)
                    for (i = 3; i in f; i++) line = line " " f[i]
                    print "deb" line
                    print "deb-src" line }' |
            sort -u >"$to/$(basename "$file" .list).list"
    done
    for file in /etc/apt/sources.list.d/*.sources; do
        [[ -r $file ]] || continue
        name=$(basename "$file")
        ferrite_apt_copy_stanzas "$suite" "$other" <"$file" >"$to/$name"
    done
    find "$to" -empty -type f -delete
}

ferrite_apt_copy_stanzas() {
    awk -v suite="$1" -v other="$2" 'BEGIN { RS = ""; ORS = "\n\n" }
        {
            keep = 0
            n = split($0, line, "\n")
            text = ""
            for (i = 1; i <= n; i++) {
                if (line[i] ~ /^#/) continue
                if (tolower(line[i]) ~ /^types:/) line[i] = "Types: deb deb-src"
                if (tolower(line[i]) ~ /^suites:/) {
                    m = split(line[i], word, /[ \t]+/)
                    line[i] = word[1]
                    for (j = 2; j <= m; j++) {
                        ours = suite == "" || index(word[j], suite) == 1
                        if (ours) keep = 1
                        if (ours || suite == other)
                            line[i] = line[i] " " (ours ? other substr(word[j], length(suite) + 1) : word[j])
                    }
                }
                text = text (text == "" ? "" : "\n") line[i]
            }
            if (keep) print text
        }'
}

ferrite_apt_configure() {
    mkdir -p "$FERRITE_APT/lists/partial" "$FERRITE_APT/cache/archives/partial"
    cat >"$FERRITE_APT/apt.conf" <<CONF
Dir::State::lists "$FERRITE_APT/lists";
Dir::Cache "$FERRITE_APT/cache";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Cache::srcpkgcache "srcpkgcache.bin";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "$FERRITE_APT/sources.list.d";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::DEP-11-icons-small::DefaultEnabled "false";
Acquire::IndexTargets::deb::DEP-11-icons::DefaultEnabled "false";
Acquire::IndexTargets::deb::CNF::DefaultEnabled "false";
APT::Sandbox::User "root";
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
CONF
}

# What this machine has installed and prefers says nothing about another release.
ferrite_apt_configure_other() {
    cat >>"$FERRITE_APT/apt.conf" <<CONF
Dir::State::status "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
#clear APT::Default-Release;
CONF
}

# Brings the private package lists up to date, at most every few hours: first with the entries of the release,
# then, when those of this machine's do not offer the server, with all of them.
ferrite_apt_update() {
    ferrite_apt_choose
    local stamp=$FERRITE_APT/updated
    [[ -n $(find "$stamp" -mmin -360 2>/dev/null) ]] && return
    command -v apt-get >/dev/null ||
        ferrite_die "this machine has no apt-get" "Ferrite takes the server's files from Debian packages; run it on Debian 12 or 13"
    ferrite_apt_configure
    if [[ -n $FERRITE_APT_TO ]]; then
        ferrite_apt_configure_other
        ! ferrite_apt_read "$FERRITE_APT_FROM" "$FERRITE_APT_TO" || return 0
        ferrite_die "Debian's archive, as this machine reads it, offers no MariaDB $FERRITE_SERVER in $FERRITE_APT_TO" \
            "MariaDB $FERRITE_SERVER is taken from Debian $FERRITE_RELEASE_NUMBER ($FERRITE_APT_TO), over the mirror that /etc/apt names for $FERRITE_APT_FROM"
    fi
    ! ferrite_apt_read "$FERRITE_APT_FROM" || return 0
    ! ferrite_apt_read "" || return 0
    ferrite_die "the package sources of this machine offer no mariadb-server-core" \
        "Ferrite needs Debian $FERRITE_RELEASE_NUMBER's main archive in /etc/apt and a network connection"
}

# ferrite_apt_read SUITE [OTHER]: the lists of these entries; fails when they offer no server.
ferrite_apt_read() {
    ferrite_apt_copy_sources "$@"
    ferrite_progress "reading the package lists of ${2:+$2, through }this machine's sources" \
        ferrite_apt_get update || true
    [[ -n $(ferrite_apt_versions mariadb-server-core) ]] || return
    touch "$FERRITE_APT/updated"
}

# The versions of a binary package, newest first.
ferrite_apt_versions() {
    ferrite_apt_cache madison "$1" 2>/dev/null | awk -F' *\\| *' '$3 ~ /Packages$/ { print $2 }' | sort -rVu
}

# ferrite_apt_fetch DIR PACKAGE[=VERSION]...: downloads packages into DIR.
ferrite_apt_fetch() {
    local dir=$1 word listed=()
    shift
    for word in "$@"; do
        if [[ $word == *=* ]] && ! ferrite_apt_versions "${word%%=*}" | grep -qxF "${word#*=}"; then
            ferrite_fetch_pinned "$dir" "${word%%=*}" "${word#*=}" || return
        else
            listed+=("$word")
        fi
    done
    ((${#listed[@]} == 0)) || (cd "$dir" && ferrite_apt_get download "${listed[@]}")
}

# ferrite_apt_fetch_source DIR PACKAGE VERSION: downloads the upstream tarball of a source package into DIR.
ferrite_apt_fetch_source() {
    if [[ -n $(ferrite_pin "$2" "$3") ]]; then
        ferrite_fetch_pinned "$@"
    else
        (cd "$1" && ferrite_apt_get source --download-only --tar-only "$2=$3")
    fi
}

# ---- versions that the lists no longer name: server_pins.txt ----

ferrite_pins() {
    awk -v series="$FERRITE_SERVER" -v arch="$(dpkg --print-architecture)" \
        '$1 == series && $3 == arch { print $2, $4, $5 }' "$FERRITE_ROOT/scripts/server_pins.txt"
}

ferrite_pinned_versions() { ferrite_pins | awk '!seen[$1]++ { print $1 }'; }

# ferrite_pin PACKAGE VERSION: sum and path of a package, or of the tarball of a source package, if it is listed.
ferrite_pin() {
    ferrite_pins | awk -v name="$1" -v version="$2" '
        { file = $3; sub(/.*\//, "", file) }
        $1 == version && index(file, name "_") == 1 { print $2, $3; exit }'
}

# Through apt's own downloader, which compares the sum, from the mirror that the lists came from.
ferrite_fetch_pinned() {
    local dir=$1 sum path mirror
    read -r sum path <<<"$(ferrite_pin "$2" "$3")"
    [[ -n $sum ]] || return
    # shellcheck disable=SC2016
    mirror=$(ferrite_apt_get indextargets --format '$(REPO_URI)' "Release: ${FERRITE_APT_TO:-$FERRITE_APT_FROM}" | head -n 1)
    /usr/lib/apt/apt-helper -c "$FERRITE_APT/apt.conf" download-file "${mirror%/}/$path" "$dir/${path##*/}" "SHA256:$sum"
}
