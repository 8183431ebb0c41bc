#!/usr/bin/env bash
# Fuzzes with libFuzzer, led by coverage: scripts/fuzz.sh [seconds per target] [target ...]
#
# Stable Rust will do: RUSTC_BOOTSTRAP lets it use the sanitizer that cargo-fuzz asks for. What is found on the way is
# kept in fuzz/target/corpus; an input that fails stays in fuzz/artifacts/<target>. Copy such an input to
# fuzz/corpus/<target>, under a name that tells what it shows, and every `cargo test` runs it from then on.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift || true
[[ $seconds =~ ^[0-9]+$ ]] || { echo "usage: scripts/fuzz.sh [seconds per target] [target ...]" >&2; exit 2; }
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    for file in fuzz/fuzz_targets/*.rs; do
        targets+=("$(basename "$file" .rs)")
    done
fi

tools=$PWD/target/tools
export PATH=$tools/bin:$PATH
if ! command -v cargo-fuzz >/dev/null; then
    echo "cargo-fuzz is missing: installing it under target/tools (a minute or two)"
    cargo install --quiet --locked --root "$tools" cargo-fuzz
fi

export RUSTC_BOOTSTRAP=1
failed=()
for target in "${targets[@]}"; do
    echo "== $target, $seconds s"
    mkdir -p "fuzz/target/corpus/$target"
    cargo fuzz run "$target" "fuzz/target/corpus/$target" "fuzz/corpus/$target" -- \
        -max_total_time="$seconds" -max_len=2048 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 || failed+=("$target")
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: ${failed[*]}" >&2
    exit 1
fi
