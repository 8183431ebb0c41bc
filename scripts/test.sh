#!/bin/sh
# What `make test` runs: format, lints, all tests, among them short runs of the benchmarks. The last line counts them.
set -eu
cd "$(dirname "$0")/.."
who='test'
. scripts/rust.sh

# The memory that has to be free for the tests' clusters to be kept there, in MB: they take 14 GB at most, processes the
# rest.
ROOM_MB=18432

step() { printf '\n== %s\n' "$*"; }

step 'what the tests need'
scripts/test-deps.sh

# What drivers need comes over the network, meanwhile. A test whose driver could not be had says so itself.
(
    for driver in asyncpg node-postgres pgjdbc pgx suites/asyncpg suites/pgx; do
        DRIVERS_PREPARE=1 "tests/drivers/$driver/run" >/dev/null 2>&1 || true
    done
) &
prepares=$!
trap 'wait "$prepares" || true' EXIT

step 'format'
cargo fmt --all --check

step 'tests'
# Most tests wait, for servers and for time to pass: more of them at once than there are processors.
export RUST_TEST_THREADS="${RUST_TEST_THREADS:-$((2 * $(nproc)))}"
mkdir -p "$target/tests"
if ! cargo test --workspace --locked --no-run 2>"$target/tests/built"; then
    cat "$target/tests/built" >&2
    exit 1
fi
# Made once, by what Sluice makes it with.
"$target/debug/examples/patroni_environment" >&2
wait "$prepares" || true
# The tests' clusters are kept in memory where there is room for them: half of a test's time is a disk's otherwise.
disk="${TMPDIR:-/tmp}"
memory=/dev/shm
free_mb="$(df -Pm "$memory" 2>/dev/null | awk 'NR == 2 { print $4 }')"
available_mb="$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)"
if [ -z "${TMPDIR:-}" ] && [ "${free_mb:-0}" -ge "$ROOM_MB" ] && [ "${available_mb:-0}" -ge "$ROOM_MB" ]; then
    memory="$memory/sluice-tests"
    mkdir -p "$memory"
    chmod 1777 "$memory"
else
    memory="$disk"
fi
# Four programs at once, for the same reason, each after others of its lane. The laboratory's tests that provoke stalls
# and find their causes come last, alone: they would find the other tests.
hosts='hosts simulation package'
nodes='nodes up_nodes cluster gate'
sharing='twin regress'
alone='stalls::'
names="$(sed -n 's|^ *Executable tests/\([a-z0-9_]*\)\(/main\)\{0,1\}\.rs .*|\1|p' "$target/tests/built" | sort -u)"
rest=''
for name in $names; do
    case " $hosts $nodes $sharing " in
        *" $name "*) ;;
        *) rest="$rest $name" ;;
    esac
done
tests() { for name; do printf ' --test %s' "$name"; done; }
# With their place first. --no-fail-fast: one failure does not hide the others.
run() {
    place="$1"
    shift
    TMPDIR="$place" cargo test --workspace --locked --no-fail-fast "$@" 2>&1
}
{
    # Each says itself what has failed.
    # shellcheck disable=SC2046,SC2086 # They are words.
    run "$memory" $(tests $hosts) >"$target/tests/hosts" &
    # shellcheck disable=SC2046,SC2086
    run "$memory" $(tests $nodes) >"$target/tests/nodes" &
    # shellcheck disable=SC2046,SC2086
    run "$memory" $(tests $sharing) >"$target/tests/sharing" &
    # shellcheck disable=SC2046,SC2086
    run "$memory" --lib --bins $(tests $rest) -- --skip "$alone" || true
    run "$memory" --doc || true
    # Beside lanes that take longer.
    step 'lints'
    cargo clippy --workspace --all-targets --locked --quiet -- -D warnings 2>&1 || echo 'error: test failed: lints'
    wait
    cat "$target/tests/hosts" "$target/tests/nodes" "$target/tests/sharing"
    # A disk that is slow has to be one.
    run "$disk" --test bench -- "$alone" || true
    [ "$memory" = "$disk" ] || rmdir "$memory" 2>/dev/null || true
} | {
    # One line for all runners, from their own closing lines.
    awk '{ print } /^test result:/ { passed += $4; failed += $6; ignored += $8 }
         /^error: .*target.* failed/ || /^error: test failed/ || /^error: could not compile/ { broken = 1 }
         END { printf "\n%d passed, %d failed, %d skipped\n", passed, failed, ignored
               exit (failed > 0 || passed == 0 || broken) }'
}
