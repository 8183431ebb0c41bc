"""What the Python checks share: how a check is named, run and reported.

A check is a function (plain or async) under the decorator `check`; it fails by any exception, so by a plain assert.
"""

import asyncio
import inspect
import os
import sys
import time
import traceback

CHECKS = []

# A check that hangs must fail by itself, with its name, before the harness gives up on the whole program.
CHECK_SECONDS_MAX = 120


def check(function):
    CHECKS.append(function)
    return function


def where(error):
    """The innermost line of the check's own file that the error passed through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.endswith("checks.py")]
    return f"line {frames[-1].lineno}: {frames[-1].line}" if frames else "?"


def report(name, error):
    if error is None:
        print(f"ok {name}", flush=True)
        return True
    reason = f"{type(error).__name__} {error} ({where(error)})".replace("\n", " ")
    print(f"not ok {name}: {reason[:600]}", flush=True)
    return False


def selected():
    """All checks, or those named as arguments."""
    return [f for f in CHECKS if not sys.argv[1:] or f.__name__ in sys.argv[1:]]


def run():
    good = True
    for function in selected():
        began = time.monotonic()
        error = None
        try:
            if inspect.iscoroutinefunction(function):
                asyncio.run(asyncio.wait_for(function(), CHECK_SECONDS_MAX))
            else:
                function()
        except Exception as caught:  # noqa: BLE001 - any error fails the check
            error = caught
        good &= report(function.__name__, error)
        if os.environ.get("DRIVERS_TIMES"):
            print(f"# {function.__name__} {time.monotonic() - began:.2f} s", file=sys.stderr)
    sys.exit(0 if good else 1)
