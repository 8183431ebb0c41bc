#!/bin/sh
# Stops what Debian has started by itself on installing these packages: scripts/stop-services.sh PACKAGE…
#
# Tests and benchmarks start their own copies on free ports; a service beside them only takes processor time.
set -eu
for package; do
    case $package in
    postgresql-15 | haproxy | pgbouncer) service=${package%-15} ;;
    etcd-server) service=etcd ;;
    *) continue ;;
    esac
    if [ -d /run/systemd/system ]; then
        systemctl disable --now "$service" || true
    elif [ -x "/etc/init.d/$service" ]; then
        "/etc/init.d/$service" stop || true
    fi
done
