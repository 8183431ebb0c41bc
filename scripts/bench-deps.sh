#!/bin/sh
# Installs what `make bench-peers` measures Sluice against: PostgreSQL 15 (with pgbench), HAProxy, PgBouncer.
#
# The benchmark starts its own copies on free ports. What Debian starts by itself on installation would only take
# processor time from it, so services that were not there before are stopped again; services that were are left alone.
set -eu

missing=
command -v /usr/lib/postgresql/15/bin/pgbench >/dev/null 2>&1 || missing="$missing postgresql-15"
for tool in haproxy pgbouncer; do
    command -v "$tool" >/dev/null 2>&1 || [ -x "/usr/sbin/$tool" ] || missing="$missing $tool"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "bench-deps: these packages are missing:$missing" >&2
    echo "bench-deps: install them with: sudo $0" >&2
    exit 1
fi

echo "bench-deps: installing$missing"
apt-get update -q
# shellcheck disable=SC2086 # a list of names
DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing

for package in $missing; do
    service=${package%-15}
    if [ -d /run/systemd/system ]; then
        systemctl disable --now "$service" || true
    elif [ -x "/etc/init.d/$service" ]; then
        "/etc/init.d/$service" stop || true
    fi
done
