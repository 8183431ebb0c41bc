# Shared by every tests/drivers/*/run: where things are, what is missing, how a dependency is installed once.
# Sourced, never run. It must not talk to a database: that is each driver's own part.

drivers_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo_root=$(cd "$drivers_dir/../.." && pwd)
# Everything that is fetched or built lands here, never beside the sources.
cache_dir=${CARGO_TARGET_DIR:-$repo_root/target}/drivers
mkdir -p "$cache_dir"

# Ends the run as "not run": the harness takes 77 as a skip, and shows the reason.
skip() {
  echo "skipped: $1"
  exit 77
}

need() {
  command -v "$1" >/dev/null 2>&1 || skip "$2 is missing"
}

# Ends the run where nothing was asked for but to have installed what it needs (DRIVERS_PREPARE=1).
prepared() {
  [ -z "${DRIVERS_PREPARE:-}" ] || exit 0
}

# The address to test comes from the environment alone, so that no run hits a server by accident.
need_target() {
  local name
  [ -z "${DRIVERS_PREPARE:-}" ] || return 0
  for name in PGHOST PGPORT PGUSER PGPASSWORD PGDATABASE; do
    if [ -z "${!name:-}" ]; then
      echo "$name is not set: it names the server to test (see tests/drivers/README.md)" >&2
      exit 2
    fi
  done
}

# once DIR FILE... -- COMMAND...: runs COMMAND unless it has succeeded in DIR for these very FILEs before.
# Two drivers that share DIR (or two runs of one) wait for each other.
# COMMAND sees this function's variables before its own script's: hence their names.
once() {
  local once_dir=$1 once_stamp once_status
  shift
  local once_files=()
  while [ "$1" != -- ]; do
    once_files+=("$1")
    shift
  done
  shift
  mkdir -p "$once_dir"
  once_stamp=$(cat "${once_files[@]}" | sha256sum | cut -d' ' -f1)
  (
    flock 9
    if [ "$(cat "$once_dir/.installed" 2>/dev/null)" != "$once_stamp" ]; then
      # A shell of its own, outside any condition: only so does `set -e` end COMMAND at its first failure.
      set +e
      (set -e; "$@") 9>&- >"$once_dir/.install.log" 2>&1
      once_status=$?
      set -e
      if [ "$once_status" -ne 0 ]; then
        echo "could not install; the end of $once_dir/.install.log:" >&2
        tail -n 20 "$once_dir/.install.log" >&2
        exit 1
      fi
      echo "$once_stamp" >"$once_dir/.installed"
    fi
  ) 9>"$once_dir/.lock"
}
