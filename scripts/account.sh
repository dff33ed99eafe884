# shellcheck shell=bash
# Whose rights a server has, and what that account can reach.
#
# A server has the rights of whoever starts it, except root: for root it runs as a system account that owns nothing but
# data directories. Every file of a data directory is made, changed and removed with that account's rights, never with
# root's: what stands in a directory that the server can write to is not to be trusted by root.

ACCOUNT=
AS=()
# The words for mariadbd, which stand after a `--`; and the account that was named among them.
SERVER_OPTIONS=()
ASKED_ACCOUNT=

ACCOUNT_OF_SERVERS=_ferrite

# What root's accounts must reach and cannot reach in root's cache stands here; root alone writes to it.
FERRITE_SYSTEM_HOME=/var/lib/ferrite

# account_ensure NAME: the system account is there; root makes it once per machine.
account_ensure() {
    local name=$1 entry
    if ! entry=$(getent passwd "$name"); then
        ferrite_say "creating the system account $name (no password, no home, no shell)"
        useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin \
            --comment "Ferrite" "$name" >/dev/null 2>&1 ||
            ferrite_die "cannot create the system account $name, which runs servers started by root" \
                "make it with useradd, or name an account of your own: ./ferrite up -- --user=NAME"
        return
    fi
    case ${entry##*:} in
        */nologin | */false | "") ;;
        *)
            ferrite_die "the account $name is not a system account: it can log in with ${entry##*:}" \
                "name another that nobody else uses: ./ferrite up -- --user=NAME"
            ;;
    esac
}

# account_take_asked: takes --user out of SERVER_OPTIONS, and sets ASKED_ACCOUNT. Root may name the account that the server runs
# as, as with any mariadbd.
account_take_asked() {
    local option next=
    local others=()
    for option in "${SERVER_OPTIONS[@]}"; do
        case $next$option in
            --user=*) ASKED_ACCOUNT=${option#--user=} ;;
            --user | -u) next="user " ;;
            "user "*) ASKED_ACCOUNT=$option next= ;;
            *) others+=("$option") ;;
        esac
    done
    # shellcheck disable=SC2034 # read by the files that source this one
    SERVER_OPTIONS=("${others[@]}")
    [[ -z $ASKED_ACCOUNT || $EUID -eq 0 || $ASKED_ACCOUNT == "$(account_me)" ]] ||
        ferrite_die "only root may start a server as $ASKED_ACCOUNT" "leave --user out: it runs as $(account_me)"
}

# account_choose DIR [NAME]: sets ACCOUNT, and AS, the words that run a command with its rights.
account_choose() {
    local dir=$1 asked=${2:-} owner=root
    ACCOUNT=$(account_me)
    AS=()
    ((EUID == 0)) || return 0
    [[ ! -e $dir ]] || owner=$(stat -c %U -- "$dir")
    if [[ -n $asked ]]; then
        getent passwd "$asked" >/dev/null || ferrite_die "there is no account '$asked'" "choose another with -- --user=NAME"
        ACCOUNT=$asked
    elif [[ $owner != root && $owner != UNKNOWN ]]; then
        ACCOUNT=$owner
    else
        account_ensure "$ACCOUNT_OF_SERVERS"
        ACCOUNT=$ACCOUNT_OF_SERVERS
    fi
    account_switch "$ACCOUNT"
}

# account_switch NAME: sets AS.
account_switch() {
    AS=()
    [[ $1 != root ]] || return 0
    AS=(setpriv "--reuid=$(id -u "$1")" "--regid=$(id -g "$1")" --clear-groups --no-new-privs)
}

# The name of the account that runs this; its number where the system has no name for it.
account_me() { id -un 2>/dev/null || id -u; }

account_as() { "${AS[@]}" "$@"; }

# account_reaches PATH: whether the account may read it (and enter it, when it is a directory).
account_reaches() {
    # shellcheck disable=SC2016
    (cd / && account_as sh -c 'test -r "$1" && { test ! -d "$1" || test -x "$1"; }' _ "$1")
}

# account_runtime: sets RUN_PREFIX, RUN_SHARE, RUN_MARIADBD, RUN_LIBS and RUN_PLUGINS, the server's files as the account reaches them.
# Of what is closed to it (root's home usually is) there is a copy, of links where the file system allows.
account_runtime() {
    local root=$FERRITE_SERVER_ROOT from to
    if ! account_reaches "$FERRITE_MARIADBD"; then
        to=$FERRITE_SYSTEM_HOME/${FERRITE_SERVER_HOME##*/}
        from=$root root=$to/${root##*/}
        [[ -e $to/complete ]] || ferrite_locked system-home account_copy_server "$from" "$to"
    fi
    RUN_PREFIX=$root/usr RUN_MARIADBD=$root/usr/sbin/mariadbd
    # shellcheck disable=SC2034 # read by the files that source this one
    RUN_LIBS=${FERRITE_SERVER_LIBS//"$FERRITE_SERVER_ROOT"/"$root"} RUN_SHARE=${FERRITE_SERVER_SHARE/#"$FERRITE_SERVER_ROOT"/"$root"}
    RUN_PLUGINS=$(dirname -- "$HA_FERRITE_SO")
    account_reaches "$HA_FERRITE_SO" || account_copy_plugin
    { account_reaches "$RUN_MARIADBD" && account_reaches "$RUN_PLUGINS/ha_ferrite.so"; } ||
        ferrite_die "the account $ACCOUNT cannot reach the server's files in $RUN_PREFIX and $RUN_PLUGINS" \
            "allow it to enter the directories above them, or set FERRITE_CACHE to another directory"
}

account_copy_server() {
    local from=$1 to=$2
    [[ ! -e $to/complete ]] || return 0
    ferrite_say "copying the server's files to $to, where $ACCOUNT can read them (once)"
    rm -rf -- "$to"
    install -d -m 755 -- "$FERRITE_SYSTEM_HOME" "$to"
    local copy=$to/${from##*/}
    cp -a --link -- "$from" "$copy" 2>/dev/null || { rm -rf -- "$copy" && cp -a -- "$from" "$copy"; } ||
        ferrite_die "cannot copy $from to $to" "check the space and the rights there"
    find "$to" ! -type l ! -perm -o=r -exec chmod a+rX -- {} +
    touch "$to/complete"
}

# One copy of the plugin per tree. A running server keeps the file it has loaded.
account_copy_plugin() {
    RUN_PLUGINS=$FERRITE_SYSTEM_HOME/plugin-$(printf '%s' "$HA_FERRITE_SO" | sha256sum | cut -c 1-12)
    install -d -m 755 -- "$FERRITE_SYSTEM_HOME" "$RUN_PLUGINS"
    install -m 644 -- "$HA_FERRITE_SO" "$RUN_PLUGINS/new.$$"
    mv -f -- "$RUN_PLUGINS/new.$$" "$RUN_PLUGINS/ha_ferrite.so"
}
