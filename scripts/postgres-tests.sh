#!/bin/sh
# Fetches PostgreSQL's own tests, which tests of the pool run, with its source by apt-get. What they need goes to
# target/postgresql-tests: the regression files, the isolation specs, their data, the libraries that they load, and the
# psql that they were written for. Nothing of it is ever committed.
set -eu
cd "$(dirname "$0")/.."

say() { echo "postgres-tests: $*" >&2; }

bin=/usr/lib/postgresql/15/bin
target=target/postgresql-tests
version=$(dpkg-query -W -f '${Version}' postgresql-15)
if [ -e "$target/version" ] && [ "$(cat "$target/version")" = "$version" ]; then exit 0; fi

work=$PWD/$target.new
rm -rf "$work"
mkdir -p "$work/apt/lists/partial" "$work/apt/parts"

# Where the system's packages come from, their sources as well, in lists apart: the system's stay as they are.
for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list; do
    [ -e "$list" ] || continue
    sed 's/^Types:.*/Types: deb deb-src/; /^deb /{p; s/^deb /deb-src /}' "$list" >"$work/apt/parts/$(basename "$list")"
done
in_private() {
    program=$1
    shift
    "$program" -q -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$work/apt/parts" \
        -o Dir::State::Lists="$work/apt/lists" -o APT::Sandbox::User=root "$@"
}
in_private apt-get update >&2
cd "$work/apt"
# That of the installed version, or of another minor one: mirrors do not keep the sources of all.
fetched=
for source in "$version" $(in_private apt-cache showsrc postgresql-15 | sed -n 's/^Version: //p' | sort -Vr); do
    say "fetching the source of PostgreSQL $source"
    if in_private apt-get source --download-only "postgresql-15=$source" >&2; then
        fetched=$source
        break
    fi
done
[ -z "$fetched" ] || in_private apt-get download "postgresql-client-15=$fetched" >&2
cd - >/dev/null
[ -n "$fetched" ] || { say 'there is none to be had'; exit 1; }

tar -xf "$work"/apt/postgresql-15_*.orig.tar.* -C "$work" --strip-components=3 --wildcards '*/src/test/regress' \
    '*/src/test/isolation'

# The functions in C that some files use. The other two libraries are the server's.
mkdir "$work/lib"
# shellcheck disable=SC2046 # a list of flags
gcc $("$bin/pg_config" --cflags) -w -fPIC -shared -I"$("$bin/pg_config" --includedir-server)" \
    -o "$work/lib/regress.so" "$work/regress/regress.c"
for library in autoinc refint; do cp "$("$bin/pg_config" --pkglibdir)/$library.so" "$work/lib/"; done

# From one minor version to the next, psql has changed what it does with the data behind a COPY that failed.
dpkg-deb -x "$work"/apt/postgresql-client-15_*.deb "$work/apt/client"
mkdir "$work/bin"
cp "$work/apt/client$bin/psql" "$work/bin/"

rm -rf "$work/apt"
echo "$version" >"$work/version"
chmod -R a+rX "$work"
rm -rf "$target"
mv "$work" "$target"
