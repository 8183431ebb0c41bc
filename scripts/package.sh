#!/bin/sh
# Builds Debian's package of the pool, target/debian/sluice_<version>_<arch>.deb: scripts/package.sh [--program FILE]
#
# With FILE it packs that program, and quickly, with the pages of the xtask that was built beside it: so the tests do it.
# Otherwise it builds both first. It installs nothing.
# The last line that it prints is the package's path.
set -eu
cd "$(dirname "$0")/.."
umask 022

say() { echo "package: $*" >&2; }
fail() { say "$*"; exit 1; }

program=
case ${1:-} in
'') ;;
--program)
    [ $# -eq 2 ] || fail 'usage: scripts/package.sh [--program FILE]'
    program=$2 ;;
*) fail 'usage: scripts/package.sh [--program FILE]' ;;
esac
for tool in dpkg-deb gzip strip; do
    command -v "$tool" >/dev/null 2>&1 || fail "$tool is missing (Debian has it in dpkg, gzip or binutils)"
done

# A key's value in [workspace.package], the first one of a list.
from_workspace() {
    sed -n '/^\[workspace\.package\]/,/^$/ s/^'"$1"' = \[\{0,1\}"\([^"]*\)".*/\1/p' Cargo.toml
}

# 0.2.0~rc.1 comes before 0.2.0; behind a hyphen there would be a revision.
version=$(from_workspace version | tr - '~')
arch=$(dpkg --print-architecture)
# Nobody can have an address below .invalid.
maintainer=$(from_workspace authors)
[ -n "$maintainer" ] || maintainer='Sluice developers <developers@sluice.invalid>'
date=$(date -R -u -d "@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}")

# Two at once would build in the same folder.
mkdir -p target/debian
exec 9>target/debian/lock
flock 9
build=target/debian/sluice
stage=$build/stage
rm -rf "$build"
mkdir -p "$stage"

if [ -z "$program" ]; then
    who=package
    . scripts/rust.sh
    say 'building'
    # Both at once and in one profile: what `make up` has compiled is not compiled again.
    cargo build --release --locked -p sluice -p xtask
    program=$target/release/sluice
    "$target/release/xtask" man "$build"
    compression=-Zxz
else
    xtask=$(dirname "$program")/xtask
    if [ -x "$xtask" ]; then "$xtask" man "$build"; else cargo run --locked --quiet -p xtask -- man "$build"; fi
    compression='-Zgzip -z1'
fi

put() { install -D -m "$1" "$2" "$stage/$3"; }
put_compressed() {
    mkdir -p "$stage/$(dirname "$2")"
    gzip -9n <"$1" >"$stage/$2.gz"
}

put 755 "$program" usr/bin/sluice
strip --strip-unneeded "$stage/usr/bin/sluice"
put 640 packaging/debian/sluice.toml etc/sluice/sluice.toml
for unit in packaging/systemd/*; do put 644 "$unit" "usr/lib/systemd/system/$(basename "$unit")"; done
for page in "$build"/man/*.1; do put_compressed "$page" "usr/share/man/man1/$(basename "$page")"; done
put 644 "$build/completions/sluice.bash" usr/share/bash-completion/completions/sluice
put 644 "$build/completions/_sluice" usr/share/zsh/vendor-completions/_sluice
put 644 "$build/completions/sluice.fish" usr/share/fish/vendor_completions.d/sluice.fish
doc=usr/share/doc/sluice
put 644 packaging/debian/copyright $doc/copyright
put 644 packaging/debian/README.Debian $doc/README.Debian
# All pages: they refer to each other. Here they stand in one folder, the reference among them.
mkdir -p "$build/pages"
for page in docs/*.md; do
    sed 's|](reference/|](|g; s|](\.\./examples|](examples|g; s|](\.\./CHANGELOG|](CHANGELOG|g' "$page" \
        >"$build/pages/$(basename "$page")"
done
for page in docs/reference/*.md; do sed 's|](\.\./|](|g' "$page" >"$build/pages/$(basename "$page")"; done
for page in "$build"/pages/*.md; do put_compressed "$page" "$doc/$(basename "$page")"; done
for example in examples/*.toml; do put 644 "$example" "$doc/examples/$(basename "$example")"; done
put 644 docs/grafana/sluice.json $doc/grafana/sluice.json
for page in docs/decisions/*.md; do put_compressed "$page" "$doc/decisions/$(basename "$page")"; done
put_compressed CHANGELOG.md $doc/CHANGELOG.md

fill() {
    sed "s|@VERSION@|$version|; s|@ARCH@|$arch|; s|@MAINTAINER@|$maintainer|; s|@SIZE@|${size:-}|; s|@DATE@|$date|; \
        s|@DEPENDS@|libc6 (>= ${glibc:-2.36}), libgcc-s1|" "$1"
}
fill packaging/debian/changelog.in >"$build/changelog"
put_compressed "$build/changelog" $doc/changelog

# The newest version of the C library that the program has a symbol of.
glibc=$(grep -aoE 'GLIBC_2\.[0-9]+' "$stage/usr/bin/sluice" | sed 's/^GLIBC_//' | sort -uV | tail -1)
size=$(du -ks "$stage" | cut -f 1)
mkdir "$stage/DEBIAN"
fill packaging/debian/control.in >"$stage/DEBIAN/control"
echo /etc/sluice/sluice.toml >"$stage/DEBIAN/conffiles"
for script in postinst prerm postrm; do install -m 755 "packaging/debian/$script" "$stage/DEBIAN/$script"; done
(cd "$stage" && find usr -type f -exec md5sum {} + >DEBIAN/md5sums)
package=target/debian/sluice_${version}_$arch.deb
# shellcheck disable=SC2086 # options
dpkg-deb --root-owner-group $compression --build "$stage" "$package" >/dev/null
echo "$package"
