# shellcheck shell=bash
# Programs of a newer Debian release than this machine's: each moves aside, and a script of its name starts it by the loader
# and the libraries that came with it. The scripts find both beside themselves, so the directory can be copied. What the
# programs start in turn (shells, perl) are the machine's own, with the machine's libraries.

FERRITE_ASIDE=lib/programs

# ferrite_wrap_programs USR
ferrite_wrap_programs() {
    local usr=$1 folder file loader
    loader=$(cd "$usr" && compgen -G 'lib/*-linux-gnu*/ld-linux*.so.*' | head -n 1) || true
    [[ -n $loader ]] || { echo "no loader among the libraries in $usr/lib" && return 1; }
    for folder in bin sbin share; do
        [[ -d $usr/$folder ]] || continue
        while IFS= read -r file; do
            ! ferrite_is_program "$usr/$file" || ferrite_wrap_program "$usr" "$file" "$loader" || return
        done < <(cd "$usr" && find "$folder" -type f -perm -u=x ! -name '*.so*')
    done
}

# A program in the machine's format; scripts and libraries are none.
ferrite_is_program() {
    [[ $(head -c 4 -- "$1" | tr -d '\0') == $'\x7fELF' ]]
}

ferrite_wrap_program() {
    local usr=$1 file=$2 loader=$3 up
    mkdir -p -- "$usr/$FERRITE_ASIDE/${file%/*}"
    mv -f -- "$usr/$file" "$usr/$FERRITE_ASIDE/$file"
    # From the program's folder up to usr.
    up=$(sed -E 's|/[^/]+$||; s|[^/]+|..|g' <<<"$file")
    cat >"$usr/$file" <<SCRIPT
#!/bin/sh
# Starts a program of another Debian release by its own loader. Made by ./ferrite.
usr=\${0%/*}/$up
exec "\$usr/$loader" --argv0 "\$0" --library-path "\$usr/${loader%/*}" "\$usr/$FERRITE_ASIDE/$file" "\$@"
SCRIPT
    chmod 755 -- "$usr/$file"
}
