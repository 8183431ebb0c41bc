#!/bin/sh
# Installs what the benchmarks need: scripts/bench-deps.sh [peers|gate]
#
# For both that is PostgreSQL 15, which has pgbench; for `peers` also HAProxy and PgBouncer, and for `gate` what the
# extension is built with. Without an argument, all of it.
#
# The benchmarks start their own copies on free ports: services that were not there before are stopped again, services
# that were are left alone.
set -eu

what=${1:-all}
case $what in peers | gate | all) ;; *) echo "usage: scripts/bench-deps.sh [peers|gate]" >&2; exit 1 ;; esac

missing=
have() { command -v "$1" >/dev/null 2>&1; }
have /usr/lib/postgresql/15/bin/pgbench || missing="$missing postgresql-15"
if [ "$what" != gate ]; then
    for tool in haproxy pgbouncer; do
        have "$tool" || [ -x "/usr/sbin/$tool" ] || missing="$missing $tool"
    done
fi
[ "$what" = peers ] || missing="$missing$("$(dirname "$0")/extension.sh" --missing)"
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "bench-deps: these packages are missing:$missing" >&2
    echo "bench-deps: install them with: sudo $0 $what" >&2
    exit 1
fi

echo "bench-deps: installing$missing"
apt-get update -q
# shellcheck disable=SC2086 # a list of names
DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
# shellcheck disable=SC2086
"$(dirname "$0")/stop-services.sh" $missing
