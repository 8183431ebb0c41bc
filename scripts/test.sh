#!/bin/sh
# What `make test` runs: format, lints, all tests, among them short runs of the benchmarks. The last line counts them.
set -eu
cd "$(dirname "$0")/.."
if ! command -v cargo >/dev/null 2>&1; then
    [ -x "$HOME/.cargo/bin/cargo" ] || { echo "test: Rust is missing; install it from https://rustup.rs" >&2; exit 1; }
    PATH="$HOME/.cargo/bin:$PATH"
    export PATH
fi

step() { printf '\n== %s\n' "$*"; }

step 'what the tests need'
scripts/test-deps.sh

step 'format and lints'
cargo fmt --all --check
cargo clippy --workspace --all-targets --locked --quiet -- -D warnings

step 'tests'
# Most tests wait, for servers and for time to pass: more of them at once than there are processors.
export RUST_TEST_THREADS="${RUST_TEST_THREADS:-$((3 * $(nproc)))}"
# --no-fail-fast: one failure does not hide the others.
cargo test --workspace --locked --no-fail-fast 2>&1 | {
    # One line for all runners, from their own closing lines.
    awk '{ print } /^test result:/ { passed += $4; failed += $6; ignored += $8 }
         /^error: .*target.* failed/ || /^error: test failed/ || /^error: could not compile/ { broken = 1 }
         END { printf "\n%d passed, %d failed, %d skipped\n", passed, failed, ignored
               exit (failed > 0 || passed == 0 || broken) }'
}
