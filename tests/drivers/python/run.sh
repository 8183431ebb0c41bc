# Sourced by psycopg/run and asyncpg/run: one virtual environment for both.

run_python_checks() {
  need python3 "python3"
  python3 -m venv --help >/dev/null 2>&1 || skip "python3's venv module is missing"
  python3 -c 'import ensurepip' 2>/dev/null || skip "python3-venv (ensurepip) is missing"
  need_target

  local venv="$cache_dir/python/venv" requirements="$drivers_dir/python/requirements.txt"
  install() {
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$requirements"
  }
  once "$cache_dir/python" "$requirements" -- install
  PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$drivers_dir/python" exec "$venv/bin/python" "$drivers_dir/$1/checks.py" "${@:2}"
}
