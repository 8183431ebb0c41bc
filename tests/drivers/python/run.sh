# Sourced by psycopg/run and asyncpg/run, and by suites/asyncpg/run: one virtual environment for all of them.

# Sets python_venv to an environment with the drivers, installed unless that was done before.
prepare_python() {
  need python3 "python3"
  python3 -m venv --help >/dev/null 2>&1 || skip "python3's venv module is missing"
  python3 -c 'import ensurepip' 2>/dev/null || skip "python3-venv (ensurepip) is missing"
  need_target

  python_venv="$cache_dir/python/venv"
  local requirements="$drivers_dir/python/requirements.txt"
  install() {
    rm -rf "$python_venv"
    python3 -m venv "$python_venv"
    "$python_venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$requirements"
  }
  once "$cache_dir/python" "$requirements" -- install
}

run_python_checks() {
  prepare_python
  prepared
  PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$drivers_dir/python" exec "$python_venv/bin/python" "$drivers_dir/$1/checks.py" "${@:2}"
}
