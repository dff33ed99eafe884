# shellcheck shell=bash
# What `./ferrite backup` and `./ferrite restore` share: what is in a backup's directory, and the programs for it.
#
#   TO/backup.info      what the backup is, as NAME=VALUE lines; written last: a directory without it holds no backup
#   TO/ferrite          Ferrite's data, as the server wrote it (docs/internals/backup.md): it alone belongs to the server's account
#   TO/server           everything else of the instance, as mariadb-backup wrote it
#   TO/server.sha256    checksums of the files in TO/server
#   TO/ferrite.password the password of the instance's user ferrite; not of a server that is no instance (kind=server in backup.info)
#
# Locking: a directory that is filled, TO or a new data directory, is locked from before the first file in it.
# shellcheck source=scripts/instance.sh
source "$FERRITE_ROOT/scripts/instance.sh"

BACKUP_INFO=backup.info
# The open directory that is locked.
BACKUP_LOCK=''

backup_noted() { sed -n "s/^$2=//p" "$1/$BACKUP_INFO" 2>/dev/null || true; }

# backup_is_log NAME: the name of a file of the binary log. backup.info has it from the server, and `restore` counts from its number.
backup_is_log() { [[ $1 =~ ^[^/]+\.[0-9]{1,18}$ ]]; }

# backup_must_be DIR: it holds a whole backup.
backup_must_be() {
    [[ -d $1 ]] || ferrite_die "there is no directory $1"
    [[ -f $1/$BACKUP_INFO ]] ||
        ferrite_die "$1/$BACKUP_INFO is missing: $1 is no backup of ./ferrite backup, or one that was cut off" \
            "take another one; what is there can be removed"
    [[ $(backup_noted "$1" version) == 1 ]] ||
        ferrite_die "$1/$BACKUP_INFO is of version '$(backup_noted "$1" version)', and this ./ferrite knows version 1"
}

# backup_tools: sets FERRITE_BACKUP and FERRITE_CHECK, and FERRITE_MARIADB_BACKUP.
backup_tools() {
    ferrite_ensure_server
    ferrite_ensure_backup_tool
    [[ -x $FERRITE_MARIADB_BACKUP ]] || ferrite_die "mariadb-backup is missing: $FERRITE_MARIADB_BACKUP" \
        "it copies what is not Ferrite's; it comes from Debian's package mariadb-backup of the server's version"
    backup_programs
}

# Sets FERRITE_BACKUP and FERRITE_CHECK.
backup_programs() {
    ferrite_ensure_tools "ferrite-backup and ferrite-check"
    FERRITE_BACKUP=$FERRITE_TOOLS_BIN/ferrite-backup
    # shellcheck disable=SC2034 # read by the files that source this one
    FERRITE_CHECK=$FERRITE_TOOLS_BIN/ferrite-check
}

# backup_new_dir WHAT DIR: it is absent or empty, and in no data directory.
backup_new_dir() {
    local what=$1 dir=$2 above=$2
    [[ ! -e $dir || -d $dir ]] || ferrite_die "$what: $dir is not a directory"
    if [[ -d $dir && -n $(ls -A -- "$dir") ]]; then
        [[ ! -f $dir/$INSTANCE_NOTE ]] || ferrite_die "$what: $dir is the data directory of an instance; nothing in it was changed" \
            "give a new directory"
        [[ ! -d $dir/#ferrite ]] || ferrite_die "$what: $dir is the data directory of a server; nothing in it was changed" \
            "give a new directory"
        ferrite_die "$what: $dir is not empty: $(find "$dir" -mindepth 1 -maxdepth 1 -printf '%f\n' -quit) is there" "give a new or an empty directory"
    fi
    while [[ $above != / ]]; do
        above=$(dirname -- "$above")
        [[ ! -f $above/$INSTANCE_NOTE && ! -d $above/#ferrite ]] || ferrite_die "$what: $dir is inside the data directory $above" "give another directory"
    done
}

# backup_take_dir WHAT DIR: makes it and locks it (BACKUP_LOCK): it is empty, and this process's alone. What is missing above it
# lets the server's account pass, whatever root's umask.
backup_take_dir() {
    local what=$1 dir=$2 above
    above=$(dirname -- "$dir")
    (
        ((EUID != 0)) || umask 022
        mkdir -p -- "$above" 2>/dev/null
    ) || ferrite_die "cannot create $above" "check the permissions or give another directory"
    (cd / && account_as test -x "$above") || ferrite_die "the server's account $ACCOUNT cannot enter $above" "give another directory"
    mkdir -p -- "$dir" 2>/dev/null || ferrite_die "cannot create $dir" "check the permissions or give another directory"
    exec {BACKUP_LOCK}<"$dir"
    flock -n "$BACKUP_LOCK" || ferrite_die "$what: another ./ferrite is using $dir; nothing in it was changed" "give a new directory"
    # Programs may have been built since it was looked at, or a backup verified for hours: another one may have begun here, and ended.
    backup_new_dir "$what" "$dir"
}

# backup_verify_chain BACKUP...: every file, the full backup first.
backup_verify_chain() { backup_verify "" "$@"; }

# backup_verify_last BACKUP...: every file of the last one, and that those before it have what it needs.
backup_verify_last() { backup_verify --last "$@"; }

# backup_verify OPTION BACKUP...: 1 if it is damaged; another code: it cannot be said.
backup_verify() {
    local option=$1 last=${!#}
    shift
    "$FERRITE_BACKUP" verify ${option:+"$option"} "${@/%//ferrite}" >/dev/null || return
    (cd -- "$last/server" && sha256sum --quiet --strict -c ../server.sha256 >&2) || {
        local status=$?
        ((status != 1)) || ferrite_warn "a file of $last/server is missing or damaged; it is named above"
        return "$status"
    }
}
