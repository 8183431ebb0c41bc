#!/bin/sh
# Installs Debian packages, as root or with sudo: scripts/install.sh WHO PACKAGE…
#
# WHO stands before what is said. What else a package starts is its caller's to stop.
set -eu
who=$1
shift
fail() { echo "$who: missing: $*; install them $how" >&2; exit 1; }

how="by your system's means"
command -v apt-get >/dev/null 2>&1 || fail "$@"
root=
if [ "$(id -u)" -ne 0 ]; then
    how="as root: apt-get install $*"
    command -v sudo >/dev/null 2>&1 || fail "$@"
    root=sudo
fi
echo "$who: installing $*" >&2
$root apt-get update -q >&2
$root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" >&2
