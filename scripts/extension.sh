#!/bin/sh
# Builds the extension and installs it: scripts/extension.sh [--deb | --missing] [PG_CONFIG ...]
#
# Without a PG_CONFIG, for the three servers that the tests use. Debian's servers get a package, so that dpkg knows
# whose files these are; others `make install`. --deb makes packages only, by default that for PostgreSQL 15, and
# installs nothing. --missing prints what Debian's packages lack for PostgreSQL 15, each name after a space. COPT in the
# environment adds flags for the compiler.
#
# Everything is built below target/extension, out of the source tree. What is installed already is left alone.
set -eu
called_from=$PWD
cd "$(dirname "$0")/.."
umask 022

debian_15=/usr/lib/postgresql/15/bin/pg_config

say() { echo "extension: $*" >&2; }
fail() { say "$*"; exit 1; }

missing_packages() {
    command -v gcc >/dev/null 2>&1 || printf ' gcc libc6-dev'
    command -v make >/dev/null 2>&1 || printf ' make'
    [ -e /usr/include/postgresql/15/server/postgres.h ] || printf ' postgresql-server-dev-15'
    # Debian's server headers include it.
    [ -e /usr/include/gssapi.h ] || printf ' libkrb5-dev'
}

# Those of a server's flags that gcc knows, if it does not know them all: a newer one may have built the server.
flags_instead_of() {
    # shellcheck disable=SC2086 # a list of flags
    if gcc $1 -E -x c /dev/null >/dev/null 2>&1; then return; fi
    for flag in $1; do
        if gcc "$flag" -E -x c /dev/null >/dev/null 2>&1; then printf '%s ' "$flag"; fi
    done
}

# PGXS for one server. It adds COPT to the server's flags itself, but to none that are given; and it finds out VPATH
# itself, but not where PostgreSQL was built within its own sources.
pgxs() {
    make -C "$build" -f ../../../extension/Makefile --silent --no-print-directory VPATH=../../../extension \
        PG_CONFIG="$pg_config" ${flags:+"CFLAGS=$flags${COPT:-}"} "$@" >&2
}

# Builds in $build, and puts into $stage what is to be installed. Starts anew where anything changed but a source: that
# is all that make looks at.
build() {
    mkdir -p "$build"
    flags=$(flags_instead_of "$("$pg_config" --cflags)")
    { "$pg_config"; echo "$flags${COPT:-}"; cat extension/Makefile extension/src/*.h; } >"$build.new" 2>&1
    cmp -s "$build.new" "$build/from" || rm -rf "$build"
    mkdir -p "$build/src"
    mv "$build.new" "$build/from"
    pgxs all
    rm -rf "$stage"
    pgxs install DESTDIR=stage
}

# Whether the system has all that was staged.
is_installed() {
    find "$stage" -type f >"$build/staged"
    while read -r file; do
        cmp -s "$file" "${file#"$stage"}" || return 1
    done <"$build/staged"
}

# A key's value in [workspace.package], the first one of a list.
from_workspace() {
    sed -n '/^\[workspace\.package\]/,/^$/ s/^'"$1"' = \[\{0,1\}"\([^"]*\)".*/\1/p' Cargo.toml
}

make_package() {
    # Nobody can have an address below .invalid.
    maintainer=$(from_workspace authors)
    [ -n "$maintainer" ] || maintainer='Sluice developers <developers@sluice.invalid>'
    install -D -m 644 extension/debian/copyright "$stage/usr/share/doc/$name/copyright"
    size=$(du -ks "$stage" | cut -f 1)
    mkdir -p "$stage/DEBIAN" target/debian
    sed "s|@MAJOR@|$major|; s|@VERSION@|$version|; s|@ARCH@|$arch|; s|@MAINTAINER@|$maintainer|; s|@SIZE@|$size|" \
        extension/debian/control.in >"$stage/DEBIAN/control"
    dpkg-deb --root-owner-group --build "$stage" "$package" >/dev/null
}

for_debian() {
    name=postgresql-$major-sluice
    arch=$(dpkg --print-architecture)
    # 0.2.0~rc.1 comes before 0.2.0; behind a hyphen there would be a revision.
    version=$(from_workspace version | tr - '~')
    package=target/debian/${name}_${version}_$arch.deb
    # shellcheck disable=SC2016 # dpkg's own variables
    present=$(dpkg-query -W -f '${db:Status-Abbrev}${Version}' "$name" 2>/dev/null) || present=none
    strip --strip-unneeded "$stage$("$pg_config" --pkglibdir)/sluice.so"
    if $only_package; then
        make_package
        echo "$package"
        return
    fi
    if [ "$present" = "ii $version" ] && is_installed; then return; fi
    make_package
    root=
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null 2>&1 || fail "not installed; as root: dpkg -i $package"
        root=sudo
    fi
    say "installing $package"
    $root dpkg -i "$package" >&2
}

for_server() {
    pg_config=$1
    major=$("$pg_config" --version | sed 's/^PostgreSQL //; s/[^0-9].*//')
    build=target/extension/$major
    stage=$build/stage
    debian=false
    if [ "$("$pg_config" --bindir)" = "/usr/lib/postgresql/$major/bin" ] && command -v dpkg-deb >/dev/null 2>&1; then
        debian=true
    fi
    if [ ! -e "$("$pg_config" --includedir-server)/postgres.h" ]; then
        if $debian; then
            fail "headers are missing; as root: apt-get install postgresql-server-dev-$major libkrb5-dev"
        fi
        fail "$pg_config knows of no server's headers"
    fi
    if $only_package && ! $debian; then fail "packages are for Debian's PostgreSQL; $pg_config is of another"; fi

    build
    if $debian; then
        for_debian
    elif ! is_installed; then
        say "installing for $("$pg_config" --version)"
        pgxs install
    fi
}

if [ "${1:-}" = --missing ]; then
    missing_packages
    exit 0
fi
only_package=false
if [ "${1:-}" = --deb ]; then
    only_package=true
    shift
fi
case ${1:-} in -*) fail 'usage: scripts/extension.sh [--deb | --missing] [PG_CONFIG ...]' ;; esac
if [ $# -gt 0 ]; then :
elif $only_package; then set -- "$debian_15"
else set -- "$debian_15" "$PWD/target/postgresql-16/bin/pg_config" "$PWD/target/postgresql-18/bin/pg_config"
fi

# Two at once would build in the same folder.
mkdir -p target/extension
exec 9>target/extension/lock
flock 9
for pg_config in "$@"; do
    # Relative to where the caller is, which is not here.
    case $pg_config in /*) ;; */*) pg_config=$called_from/$pg_config ;; esac
    command -v "$pg_config" >/dev/null 2>&1 || fail "there is no $pg_config"
    for_server "$pg_config"
done
