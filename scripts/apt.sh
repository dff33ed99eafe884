# shellcheck shell=bash
# A private apt: the machine's own package sources, with source packages added, in a state directory of ours.
# It looks up and downloads; it installs nothing and changes nothing on the machine.

FERRITE_APT=$FERRITE_CACHE/apt

ferrite_apt_get() { apt-get -q -c "$FERRITE_APT/apt.conf" "$@"; }
ferrite_apt_cache() { apt-cache -c "$FERRITE_APT/apt.conf" "$@"; }

# Copies the configured sources in either format, each binary entry with its source twin. With a word, only the
# entries that speak of a suite beginning with it.
ferrite_apt_copy_sources() {
    local suite=$1 file name to=$FERRITE_APT/sources.list.d
    rm -rf "$to"
    mkdir -p "$to"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [[ -r $file ]] || continue
        sed -nE 's/^[[:space:]]*deb(-src)?[[:space:]]/ /p' "$file" |
            awk -v suite="$suite" '
                { rest = $0; sub(/^ *(\[[^]]*\])? */, "", rest); split(rest, f, " ") }
                index(f[2], suite) == 1 { print "deb" $0; print "deb-src" $0 }' |
            sort -u >"$to/$(basename "$file" .list).list"
    done
    for file in /etc/apt/sources.list.d/*.sources; do
        [[ -r $file ]] || continue
        name=$(basename "$file")
        ferrite_apt_copy_stanzas "$suite" <"$file" >"$to/$name"
    done
    find "$to" -empty -type f -delete
}

ferrite_apt_copy_stanzas() {
    awk -v suite="$1" 'BEGIN { RS = ""; ORS = "\n\n" }
        {
            keep = 0
            n = split($0, line, "\n")
            text = ""
            for (i = 1; i <= n; i++) {
                if (line[i] ~ /^#/) continue
                if (tolower(line[i]) ~ /^types:/) line[i] = "Types: deb deb-src"
                if (tolower(line[i]) ~ /^suites:/) {
                    m = split(line[i], word, /[ \t]+/)
                    for (j = 2; j <= m; j++) if (index(word[j], suite) == 1) keep = 1
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

# Brings the private package lists up to date, at most every few hours: first with the entries of this release,
# then, when those do not offer the server, with all of them.
ferrite_apt_update() {
    local stamp=$FERRITE_APT/updated suite
    [[ -n $(find "$stamp" -mmin -360 2>/dev/null) ]] && return
    command -v apt-get >/dev/null ||
        ferrite_die "this machine has no apt-get" "Ferrite takes the server's files from Debian packages; run it on Debian 12"
    ferrite_apt_configure
    # shellcheck disable=SC1091
    suite=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
    for suite in "$suite" ""; do
        ferrite_apt_copy_sources "$suite"
        ferrite_progress "reading the package lists of this machine's sources" ferrite_apt_get update || true
        if [[ -n $(ferrite_apt_versions mariadb-server-core) ]]; then
            touch "$stamp"
            return
        fi
    done
    ferrite_die "the package sources of this machine offer no mariadb-server-core" \
        "Ferrite needs Debian 12's main archive in /etc/apt and a network connection"
}

# The versions of a binary package, newest first.
ferrite_apt_versions() {
    ferrite_apt_cache madison "$1" 2>/dev/null | awk -F' *\\| *' '$3 ~ /Packages$/ { print $2 }' | sort -rVu
}

# ferrite_apt_fetch DIR PACKAGE[=VERSION]...: downloads packages into DIR.
ferrite_apt_fetch() {
    local dir=$1
    shift
    (cd "$dir" && ferrite_apt_get download "$@")
}

# ferrite_apt_fetch_source DIR PACKAGE VERSION: downloads the upstream tarball of a source package into DIR.
ferrite_apt_fetch_source() {
    (cd "$1" && ferrite_apt_get source --download-only --tar-only "$2=$3")
}
