# shellcheck shell=bash
# `./ferrite snapshot`: snapshots of the Ferrite tables of a running instance, or of any running server, kept until they are dropped.
# shellcheck source=scripts/server.sh
source "$FERRITE_ROOT/scripts/server.sh"

SNAPSHOT_NAME='' SNAPSHOT_DO=create

cmd_snapshot() {
    instance_defaults
    snapshot_options "$@"
    server_find
    case $SNAPSHOT_DO in
        list) snapshot_list ;;
        create)
            snapshot_set ferrite_snapshot_create
            printf 'Snapshot %s is kept. Back to it: %s\n' "$SNAPSHOT_NAME" "$(instance_command "rewind $SNAPSHOT_NAME")"
            ;;
        drop)
            snapshot_set ferrite_snapshot_drop
            printf 'Snapshot %s is dropped.\n' "$SNAPSHOT_NAME"
            ;;
    esac
}

snapshot_options() {
    while (($# > 0)); do
        case $1 in
            --dir | --socket | --defaults-file)
                ferrite_need_value "$@"
                snapshot_take "$1" "$2"
                shift
                ;;
            --dir=* | --socket=* | --defaults-file=*) snapshot_take "${1%%=*}" "${1#*=}" ;;
            --list) SNAPSHOT_DO=list ;;
            --drop) SNAPSHOT_DO=drop ;;
            -*) ferrite_die "snapshot: unknown option '$1'" "see ./ferrite help" ;;
            *)
                [[ -z $SNAPSHOT_NAME ]] || ferrite_die "snapshot: a second name '$1'" "see ./ferrite help"
                SNAPSHOT_NAME=$1
                ;;
        esac
        shift
    done
    if [[ $SNAPSHOT_DO == list ]]; then
        [[ -z $SNAPSHOT_NAME ]] || ferrite_die "snapshot: --list takes no name"
    else
        snapshot_check_name "$SNAPSHOT_NAME"
    fi
}

snapshot_take() {
    case $1 in
        --dir) DIR=$2 INSTANCE_ASKED=1 ;;
        *) server_set "$1" "$2" ;;
    esac
}

snapshot_check_name() {
    [[ $1 =~ ^[A-Za-z0-9_-]{1,64}$ ]] ||
        ferrite_die "snapshot: '$1' is not a name: letters, digits, '-' and '_', at most 64" "see ./ferrite help"
}

snapshot_set() {
    local said
    said=$(instance_client mariadb --batch --skip-column-names -e "SET GLOBAL $1='$SNAPSHOT_NAME'" 2>&1) ||
        ferrite_die "${said##*: }"
}

snapshot_list() {
    instance_client mariadb --table -e "SELECT name, state, taken, scheduled, changed_bytes DIV 1048576 AS changed_mib,
        file_bytes DIV 1048576 AS files_mib, binlog_file, binlog_position, gtid, error
        FROM information_schema.FERRITE_KEPT_SNAPSHOTS"
}
