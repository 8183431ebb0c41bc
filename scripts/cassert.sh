#!/bin/sh
# Builds PostgreSQL 15 with assertions (--enable-cassert) from Debian's source package, into
# target/postgresql-15-cassert, with the extension. Nothing of the system changes, except that what a build needs is
# installed; the package lists are kept below target.
set -eu
cd "$(dirname "$0")/.."

target=$PWD/target/postgresql-15-cassert

say() { echo "cassert: $*" >&2; }

missing=
for tool in bzip2 gcc make perl xz; do
    command -v $tool >/dev/null 2>&1 || missing="$missing $(echo $tool | sed 's/^xz$/xz-utils/')"
done
[ -e /usr/include/unistd.h ] || missing="$missing libc6-dev"
if [ -n "$missing" ]; then
    # shellcheck disable=SC2086 # a list of names
    scripts/install.sh cassert $missing
fi

# apt with lists of its own, so that the system's need not name sources.
apt() {
    program=$1
    shift
    "$program" -q -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" -o APT::Sandbox::User= "$@"
}

if ! [ -x "$target/bin/postgres" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
    echo 'deb-src http://deb.debian.org/debian bookworm main' >"$work/sources.list"
    say 'fetching the sources'
    apt apt-get update >&2
    (cd "$work" && apt apt-get source --download-only postgresql-15 >&2)
    mkdir "$work/source"
    tar -xjf "$work"/postgresql-15_*.orig.tar.bz2 -C "$work/source" --strip-components 1
    say 'building; this takes a few minutes'
    (
        cd "$work/source"
        ./configure --quiet --prefix="$target.new" --enable-cassert --enable-debug --without-readline --without-zlib \
            CFLAGS='-O2 -fno-omit-frame-pointer'
        jobs=$(nproc)
        make --silent -j "$jobs" -C src all
        make --silent -C src install
        for module in dblink postgres_fdw; do make --silent -C contrib/$module install; done
    ) >"$work/log" 2>&1 || { tail -50 "$work/log" >&2; exit 1; }
    chmod -R a+rX "$target.new"
    rm -rf "$target"
    # The programs find their libraries and each other from where they are.
    mv "$target.new" "$target"
fi
"$target/bin/postgres" --version >&2
COPT=-Werror scripts/extension.sh "$target/bin/pg_config"
