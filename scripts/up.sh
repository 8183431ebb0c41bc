#!/bin/sh
# What `make up` runs: installs what is missing (PostgreSQL, a linker for Rust), builds Sluice, starts it. Debian's
# PostgreSQL 15 gets the extension as well.
#
#   make up ARGS="--data DIR --listen ADDR:PORT"      or      scripts/up.sh --data DIR --listen ADDR:PORT
#
# It changes nothing on the system but by apt-get and dpkg. A PostgreSQL that Debian starts by itself on installation is
# stopped again: Sluice starts its own. One that was there before is left alone.
set -eu
cd "$(dirname "$0")/.."

say() { echo "up: $*" >&2; }

# PostgreSQL where `sluice up` looks for it.
have_postgresql() {
    case " $* " in *" --pg-bin"*) return 0 ;; esac
    bindir=$(pg_config --bindir 2>/dev/null) && [ -x "$bindir/postgres" ] && return 0
    for postgres in /usr/lib/postgresql/*/bin/postgres; do
        [ -x "$postgres" ] && return 0
    done
    command -v postgres >/dev/null 2>&1
}

# Each step says by itself whether it failed: `set -e` does not hold where the caller goes on after a failure.
install() {
    # shellcheck disable=SC2086 # a list of names
    scripts/install.sh up $1 || return 1
    root=
    [ "$(id -u)" -eq 0 ] || root=sudo
    # The server's package, not one that is only named after it.
    case "$1 " in *" postgresql "* | *" postgresql-15 "*)
        if [ -d /run/systemd/system ]; then
            $root systemctl disable --now postgresql >&2 || true
        elif [ -x /etc/init.d/postgresql ]; then
            $root /etc/init.d/postgresql stop >&2 || true
        fi ;;
    esac
}

# Builds and installs the extension, for Debian's PostgreSQL 15. Who names another PostgreSQL has scripts/extension.sh.
extension() {
    case " $* " in
        *" --pg-bin"?"/usr/lib/postgresql/15/bin"*) ;;
        *" --pg-bin"*) return 0 ;;
    esac
    [ -x /usr/lib/postgresql/15/bin/postgres ] || return 0
    missing=$(scripts/extension.sh --missing)
    [ -z "$missing" ] || install "$missing" || return 1
    scripts/extension.sh /usr/lib/postgresql/15/bin/pg_config
}

who=up
. scripts/rust.sh

missing=
command -v cc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
if ! have_postgresql "$@"; then
    # Debian 12 has 15; others have one of their own behind the plain name.
    if apt-cache show postgresql-15 >/dev/null 2>&1; then missing="$missing postgresql-15"; else missing="$missing postgresql"; fi
fi
[ -z "$missing" ] || install "$missing" || exit 1
extension "$@" || say "the extension could not be installed; going on without it"

say "building (the first time takes a few minutes)"
cargo build --release --locked --quiet -p sluice
exec "$target/release/sluice" up "$@"
