# shellcheck shell=bash
# `./ferrite package`: Debian packages of the plugin and of the tools, for one server version.
#
#   mariadb-plugin-ferrite_VERSION-REVISION+mariadbSERVER_ARCH.deb   the plugin, its settings, its pages
#   ferrite-tools_VERSION-REVISION_ARCH.deb                          the programs, which need no server; of the launcher what needs no checkout
#
# The same sources, compilers and SOURCE_DATE_EPOCH give the same bytes, wherever the tree, the target directory and the
# caches are: paths are mapped away when compiling, and times, owners, modes and the order of files are fixed here.
# With HA_FERRITE_SO (and FERRITE_TOOLS, a directory) what was built before is packed instead.

PACKAGE_MAINTAINER=${FERRITE_MAINTAINER:-Ferrite maintainers <maintainers@ferrite.invalid>}
PACKAGE_TOOLS=(ferrite-backup ferrite-check ferrite-rewind)
# The launcher's commands that need no checkout, and what they are made of.
PACKAGE_SCRIPTS=(lib.sh installed.sh server.sh instance.sh account.sh access.sh backup.sh backup_files.sh restore.sh restore_server.sh binlog_end.py
    snapshot.sh rewind.sh other_engines.py open.sh status.sh top.sh migrate.sh up.sh down.sh sql.sh)
PACKAGE_PAGES=(backup snapshots monitoring stalls encryption ferrite-check moving-from-innodb)
PACKAGE_OUT='' PACKAGE_REVISION=1

cmd_package() {
    package_options "$@"
    ferrite_need_tool dpkg-deb dpkg strip binutils python3 python3
    ferrite_ensure_server
    package_epoch
    package_build
    local work name
    work=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "rm -rf '$work'" EXIT
    umask 022
    mkdir -p -- "$PACKAGE_OUT"
    for name in plugin tools; do
        mkdir -- "$work/$name"
        "package_$name" "$work/$name"
        package_pack "$work/$name"
    done
}

package_options() {
    PACKAGE_OUT=$(ferrite_target_dir)/packages
    while (($# > 0)); do
        case $1 in
            --out | --revision)
                ferrite_need_value "$@"
                package_set "$1" "$2"
                shift
                ;;
            --out=* | --revision=*) package_set "${1%%=*}" "${1#*=}" ;;
            *) ferrite_die "package: unknown word '$1'" "see ./ferrite help" ;;
        esac
        shift
    done
    [[ $PACKAGE_REVISION =~ ^[1-9][0-9]{0,5}$ ]] || ferrite_die "package: --revision takes a number from 1, not '$PACKAGE_REVISION'"
}

package_set() {
    case $1 in
        --out) PACKAGE_OUT=$(realpath -m -- "$2") ;;
        --revision) PACKAGE_REVISION=$2 ;;
    esac
}

# SOURCE_DATE_EPOCH: the environment's, or the time of the last commit, or of the changelog.
package_epoch() {
    if [[ -z ${SOURCE_DATE_EPOCH:-} ]]; then
        SOURCE_DATE_EPOCH=$(git -C "$FERRITE_ROOT" log -1 --format=%ct 2>/dev/null) ||
            SOURCE_DATE_EPOCH=$(stat -c %Y "$FERRITE_ROOT/CHANGELOG.md")
    fi
    [[ $SOURCE_DATE_EPOCH =~ ^[0-9]+$ ]] || ferrite_die "SOURCE_DATE_EPOCH is no number of seconds: '$SOURCE_DATE_EPOCH'"
    export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
}

# Sets PACKAGE_SO and PACKAGE_BIN.
package_build() {
    if [[ -n ${HA_FERRITE_SO:-} ]]; then
        PACKAGE_SO=$HA_FERRITE_SO
        PACKAGE_BIN=${FERRITE_TOOLS:-$(ferrite_target_dir)/release}
    else
        package_build_here
    fi
    local name
    for name in "$PACKAGE_SO" "${PACKAGE_TOOLS[@]/#/$PACKAGE_BIN/}"; do
        [[ -f $name ]] || ferrite_die "there is no $name to be packed" "build it, or leave HA_FERRITE_SO and FERRITE_TOOLS out"
    done
    grep -qaF "Ferrite built for MariaDB $FERRITE_SERVER_VERSION" "$PACKAGE_SO" ||
        ferrite_die "$PACKAGE_SO was not built for MariaDB $FERRITE_SERVER_VERSION"
}

# A target directory of its own: the flags that take paths out are not those of other builds.
package_build_here() {
    local cargo_home=${CARGO_HOME:-$HOME/.cargo} target
    target=$(ferrite_target_dir)/package
    export CARGO_TARGET_DIR=$target
    export RUSTFLAGS="--remap-path-prefix=$FERRITE_ROOT=/ferrite --remap-path-prefix=$cargo_home=/cargo --remap-path-prefix=$target=/target"
    local map="-ffile-prefix-map=$FERRITE_ROOT=/ferrite -ffile-prefix-map=$cargo_home=/cargo \
-ffile-prefix-map=$target=/target -ffile-prefix-map=$FERRITE_SERVER_HOME=/server"
    export CFLAGS="-fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 $map"
    export FERRITE_CXXFLAGS="${FERRITE_CXXFLAGS:-} $map"
    ferrite_build
    ferrite_progress "building the tools" cargo build --manifest-path "$FERRITE_ROOT/Cargo.toml" --release --locked -p ferrite-tools ||
        ferrite_die "the tools do not build" "the compiler's messages are above"
    PACKAGE_SO=$HA_FERRITE_SO
    PACKAGE_BIN=$target/release
}

package_version() {
    sed -n 's/^version *= *"\(.*\)"/\1/p' "$FERRITE_ROOT/Cargo.toml" | head -n 1
}

# package_plugin DIR
package_plugin() {
    local dir=$1 name=mariadb-plugin-ferrite from=$FERRITE_ROOT/packaging doc=$1/usr/share/doc/mariadb-plugin-ferrite page
    package_strip "$PACKAGE_SO" "$dir/usr/lib/mysql/plugin/ha_ferrite.so" 644
    package_file 644 "$from/debian/60-ferrite.cnf" "$dir/etc/mysql/mariadb.conf.d/60-ferrite.cnf"
    package_file 644 "$from/debian/README.Debian" "$doc/README.Debian"
    package_file 644 "$from/debian/apparmor" "$doc/examples/apparmor"
    package_file 644 "$from/systemd/ferrite.conf" "$doc/examples/ferrite.conf"
    for page in compatibility.md operating/variables.md; do
        package_zipped "$FERRITE_ROOT/docs/$page" "$doc/${page##*/}.gz"
    done
    package_zipped "$from/man/$name.7" "$dir/usr/share/man/man7/$name.7.gz"
    package_papers "$dir" "$name" ferrite-capi "$(package_version)-$PACKAGE_REVISION+mariadb$FERRITE_SERVER_VERSION"
    package_file 755 "$from/debian/prerm" "$dir/DEBIAN/prerm"
    package_file 755 "$from/debian/postinst" "$dir/DEBIAN/postinst"
    echo /etc/mysql/mariadb.conf.d/60-ferrite.cnf >"$dir/DEBIAN/conffiles"
    package_control "$dir" <<CONTROL
Package: $name
Version: $PACKAGE_NUMBER
Section: database
Depends: mariadb-server-core (= $FERRITE_SERVER_PACKAGE), $(package_libraries "$dir/usr/lib/mysql/plugin/ha_ferrite.so")
Recommends: mariadb-server
Suggests: ferrite-tools
Description: transactional storage engine Ferrite for MariaDB
 Ferrite is a storage engine with row locks, consistent snapshots, savepoints,
 XA, two-phase commit with the binary log, foreign keys and crash recovery, with
 the semantics that applications know from InnoDB. Its history stays bounded
 while snapshots are open, and its pages are written once.
 .
 This package is for MariaDB $FERRITE_SERVER_VERSION. It is not removed while there are
 Ferrite tables, and never removes data.
CONTROL
}

# package_tools DIR: nothing in it depends on the server's version.
package_tools() {
    local dir=$1 name=ferrite-tools tool
    for tool in "${PACKAGE_TOOLS[@]}"; do
        package_strip "$PACKAGE_BIN/$tool" "$dir/usr/bin/$tool" 755
        package_zipped "$FERRITE_ROOT/packaging/man/$tool.1" "$dir/usr/share/man/man1/$tool.1.gz"
    done
    package_file 755 "$FERRITE_ROOT/packaging/ferrite-top" "$dir/usr/bin/ferrite-top"
    package_zipped "$FERRITE_ROOT/packaging/man/ferrite-top.1" "$dir/usr/share/man/man1/ferrite-top.1.gz"
    for tool in "$FERRITE_ROOT"/top/ferrite_top/*.py; do
        package_file 644 "$tool" "$dir/usr/share/ferrite-tools/ferrite_top/${tool##*/}"
    done
    package_launcher "$dir"
    package_monitoring "$dir"
    package_papers "$dir" "$name" ferrite-tools "$(package_version)-$PACKAGE_REVISION"
    package_control "$dir" <<CONTROL
Package: $name
Version: $PACKAGE_NUMBER
Section: database
Depends: $(package_libraries "${PACKAGE_TOOLS[@]/#/$dir/usr/bin/}")
Recommends: mariadb-client, mariadb-backup, python3, python3-pymysql
Suggests: mariadb-plugin-ferrite
Description: tools for databases of the storage engine Ferrite
 ferrite takes hot backups of a running server, full and incremental, restores
 them, to a point in time too, keeps snapshots, goes back to them and opens
 them, and moves tables from InnoDB and back.
 ferrite-check verifies the files of a database without a server and salvages
 rows from a damaged one. ferrite-backup verifies hot backups and restores them.
 ferrite-rewind takes the tables of a stopped server back to a snapshot.
 ferrite-top shows what a server is doing; it needs Python and PyMySQL.
 A dashboard for Grafana and alert rules for Prometheus are there, too.
CONTROL
}

# package_launcher DIR
package_launcher() {
    local to=$1/usr/share/ferrite-tools name
    package_called 755 "$FERRITE_ROOT/ferrite" "$1/usr/bin/ferrite"
    for name in "${PACKAGE_SCRIPTS[@]}"; do
        package_called 644 "$FERRITE_ROOT/scripts/$name" "$to/scripts/$name"
    done
    for name in "$FERRITE_ROOT"/migrate/ferrite_migrate/*.py; do
        package_called 644 "$name" "$to/ferrite_migrate/${name##*/}"
    done
    package_zipped "$FERRITE_ROOT/packaging/man/ferrite.1" "$1/usr/share/man/man1/ferrite.1.gz"
    for name in "${PACKAGE_PAGES[@]}"; do
        package_zipped "$FERRITE_ROOT/docs/operating/$name.md" "$1/usr/share/doc/ferrite-tools/$name.md.gz"
    done
}

package_monitoring() {
    local to=$1/usr/share/ferrite-tools
    package_called 644 "$FERRITE_ROOT/packaging/prometheus/ferrite.rules.yml" "$to/prometheus/ferrite.rules.yml"
    package_called 644 "$FERRITE_ROOT/packaging/grafana/ferrite.json" "$to/grafana/ferrite.json"
}

# package_file MODE FROM TO
package_file() { install -D -m "$1" -- "$2" "$3"; }

# package_called MODE FROM TO: a file that calls command and pages by their names there, on the PATH and below /usr/share/doc.
package_called() {
    package_file "$@"
    sed -i -e 's|\./ferrite|ferrite|g' -e 's|docs/operating/\([a-z-]*\.md\)|/usr/share/doc/ferrite-tools/\1.gz|g' -- "$3"
}

# package_zipped FROM TO: without its name and time.
package_zipped() {
    mkdir -p -- "${2%/*}"
    gzip -9n <"$1" >"$2"
}

# package_strip FROM TO MODE. The build id stays: taking its section out takes the header of RELRO along.
package_strip() {
    package_file "$3" "$1" "$2"
    strip --strip-unneeded --remove-section=.comment -- "$2"
}

# package_papers DIR NAME CRATE VERSION: licences and changes; sets PACKAGE_NUMBER, the version.
package_papers() {
    local doc=$1/usr/share/doc/$2
    PACKAGE_NUMBER=$4
    mkdir -p -- "$doc"
    ferrite_need_cargo
    python3 "$FERRITE_ROOT/scripts/package_copyright.py" "$FERRITE_ROOT" "$3" >"$doc/copyright" ||
        ferrite_die "the licences of what is linked cannot be gathered" "the message is above"
    package_zipped "$FERRITE_ROOT/CHANGELOG.md" "$doc/changelog.gz"
    printf '%s (%s) unstable; urgency=medium\n\n  * Ferrite %s. What is different: changelog.gz.\n\n -- %s  %s\n' \
        "$2" "$4" "$(package_version)" "$PACKAGE_MAINTAINER" "$(date -uRd "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.Debian.gz"
}

# package_control DIR: the fields that all have, after those of the input's first three lines; sums of all files.
package_control() {
    local dir=$1 text size
    size=$(package_size "$dir")
    text=$(cat)
    mkdir -p -- "$dir/DEBIAN"
    # The description comes last.
    {
        sed -n '1,/^Description:/{/^Description:/!p}' <<<"$text"
        printf 'Architecture: %s\nPriority: optional\nMaintainer: %s\nInstalled-Size: %s\n' \
            "$(dpkg --print-architecture)" "$PACKAGE_MAINTAINER" "$size"
        sed -n '/^Description:/,$p' <<<"$text"
    } >"$dir/DEBIAN/control"
    (cd -- "$dir" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum) >"$dir/DEBIAN/md5sums"
}

# package_size DIR: in KiB, as dpkg counts: each file rounded up, anything else as one. What the directories take on the disk
# depends on the file system.
package_size() {
    find "$1" -path "$1/DEBIAN" -prune -o -printf '%y %s\n' |
        awk '{ kib += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print kib + 0 }'
}

# package_libraries FILE...: the packages of the C and C++ libraries that the programs load, with the oldest version of the
# C library whose symbols they use. Their names are the same in Debian 12 and 13.
package_libraries() {
    local needed glibc list
    needed=$(objdump -p "$@" | awk '$1 == "NEEDED" { print $2 }' | sort -u)
    glibc=$(objdump -T "$@" | grep -oE 'GLIBC_[0-9.]+' | sort -Vu | tail -n 1)
    list="libc6 (>= ${glibc#GLIBC_})"
    while IFS= read -r name; do
        case $name in
            libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | ld-linux*) ;;
            libgcc_s.so.1) list+=", libgcc-s1" ;;
            libstdc++.so.6) list+=", libstdc++6 (>= 12)" ;;
            *) ferrite_die "no package is known for the library $name" ;;
        esac
    done <<<"$needed"
    printf '%s\n' "$list"
}

# package_pack DIR
package_pack() {
    local dir=$1 file
    file=$PACKAGE_OUT/$(sed -nE 's/^(Package|Version|Architecture): //p' "$dir/DEBIAN/control" | paste -sd _).deb
    find "$dir" -type d -exec chmod 755 {} +
    find "$dir" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group --threads-max=1 -Zxz -z6 --build "$dir" "$file" >/dev/null ||
        ferrite_die "dpkg-deb cannot build $file"
    printf '%s\n' "$file"
}
