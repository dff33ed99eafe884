# shellcheck shell=bash
# What `./ferrite restore` does otherwise with the backup of a server that was no instance (kind=server in backup.info): the
# directory belongs to the account of that server, has its users and nothing else, and no file of ./ferrite's when it is done.
#
# To apply the binary log, the directory is an instance for that long (its note says `replaying`), with one more user, who is gone
# before the server is shut down; its other users are not touched. The server has the options that the backup has noted.
#
# Rights: who could write backup.info says what root does: its options start a server, with the rights of its account. Root believes a file
# of root's only, of the options those that a backup notes, and never that the account is root.
#
# Locking: none of its own; see restore.sh.

# The account that gets the directory; how to log in to the server that applies the log, and its options.
RESTORE_OWNER='' RESTORE_LOGIN=() RESTORE_OPTIONS=()

# One that the server does not have.
RESTORE_USER=ferrite-restore-$$

restore_is_server() { [[ $(backup_noted "${RESTORE_FROM[-1]}" kind) == server ]]; }

# --owner is for root, and for either kind of backup.
restore_take_owner() {
    [[ -n $RESTORE_OWNER ]] || return 0
    [[ -z $ASKED_ACCOUNT || $ASKED_ACCOUNT == "$RESTORE_OWNER" ]] || ferrite_die "restore: --owner $RESTORE_OWNER and --user=$ASKED_ACCOUNT contradict each other"
    ((EUID == 0)) || [[ $RESTORE_OWNER == "$(account_me)" ]] || ferrite_die "only root may restore for $RESTORE_OWNER" "leave --owner out: the files belong to $(account_me)"
    getent passwd "$RESTORE_OWNER" >/dev/null || ferrite_die "--owner: there is no account '$RESTORE_OWNER'"
    ASKED_ACCOUNT=$RESTORE_OWNER
}

# The account that the server had, unless another is asked for.
restore_server_owner() {
    local noted option name
    ((EUID != 0)) || [[ $(stat -c %u -- "$RESTORE_LAST/$BACKUP_INFO") == 0 ]] ||
        ferrite_die "$RESTORE_LAST/$BACKUP_INFO belongs to $(stat -c %U -- "$RESTORE_LAST/$BACKUP_INFO"), who could have changed what root would do" \
            "restore it as that account; or, if you know that the backup is as it was: chown -R --no-dereference root $(printf '%q' "$RESTORE_LAST")"
    while IFS= read -r option; do
        [[ -n $option ]] || continue
        name=${option%%=*}
        name=${name#--}
        [[ $option == --*=* && " ${SERVER_KEPT[*]} " == *" ${name//-/_} "* ]] ||
            ferrite_die "$RESTORE_LAST/$BACKUP_INFO has the option '$option', which no backup notes"
        RESTORE_OPTIONS+=("$option")
    done < <(backup_noted "$RESTORE_LAST" option)
    ((EUID == 0)) || return 0
    [[ -z $ASKED_ACCOUNT ]] || return 0
    noted=$(backup_noted "$RESTORE_LAST" owner)
    getent passwd "$noted" >/dev/null || ferrite_die "the server of $RESTORE_LAST ran as the account '$noted', which this machine does not have" \
        "name the account that the files are to belong to: --owner ACCOUNT"
    [[ $(id -u -- "$noted") != 0 ]] || ferrite_die "the server of $RESTORE_LAST ran as root" "if the files are to belong to root again: --owner root"
    ASKED_ACCOUNT=$noted
}

# A password that the validation plugins of a server take, too.
restore_server_login() {
    MYSQL_PWD=$(od -An -N 20 -tx1 /dev/urandom | tr -d ' \n')Aa.
    export MYSQL_PWD FERRITE_REPLAY_USER=$RESTORE_USER
    RESTORE_LOGIN=("--user=$RESTORE_USER")
}

restore_server_logout() {
    "$FERRITE_LAUNCHER" sql --dir "$DIR" "${RESTORE_LOGIN[@]}" -e "DROP USER '$RESTORE_USER'@'localhost'"
}

# With the account's rights, as everything in the directory is.
restore_server_tidy() {
    # shellcheck disable=SC2016
    instance_as sh -c 'cd -- "$1" && rm -rf -- .files .tmp .access.sql ferrite.err ferrite.err.old ferrite.pid ferrite.sock ferrite.instance' _ "$DIR" ||
        ferrite_die "cannot remove what ./ferrite has left in $DIR"
    sync -f -- "$DIR"
}

restore_server_say() {
    local data name places=()
    data=$(backup_noted "$RESTORE_LAST" datadir)
    while IFS= read -r name; do
        [[ -z $name ]] || places+=("$name=$DIR")
    done < <(backup_noted "$RESTORE_LAST" place)
    server_tell_links "$DIR"
    ((${#places[@]} == 0)) || printf '%s\n' "The server had files of InnoDB or Aria outside its data directory. They are in $DIR now: before you start it, give the options" \
        "${places[*]} (with the name that the directory has then), or move the files to where its configuration says."
    cat <<TEXT
It is a data directory for your own mariadbd, of MariaDB $(backup_noted "$RESTORE_LAST" server), and belongs to $ACCOUNT. In the place of the old one:
  systemctl stop mariadb
  mv $(printf '%q' "$data") $(printf '%q' "$data.old")
  mv $(printf '%q' "$DIR") $(printf '%q' "$data")
  systemctl start mariadb
Or beside it, with another port and socket than the running server's:
  mariadbd --datadir=$(printf '%q' "$DIR") --user=$ACCOUNT --port=3399 --socket=$(printf '%q' "$DIR/mariadbd.sock") --pid-file=$(printf '%q' "$DIR/mariadbd.pid") --skip-slave-start$( ((${#places[@]} == 0)) || printf ' %q' "${places[@]}")
TEXT
}
