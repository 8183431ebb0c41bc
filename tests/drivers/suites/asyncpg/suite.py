"""Runs asyncpg's tests, and says in a line for each how it ended. Arguments are names of modules or tests, all by default."""

import contextlib
import io
import pathlib
import signal
import sys
import time
import unittest

# No test of theirs takes longer, and one that hangs must not take the others with it.
TEST_SECONDS_MAX = 90

# These look at asyncpg's sources and at the environment of its own CI, not at a server.
LEFT_OUT = {"test__sourcecode", "test__environment"}


class Hung(BaseException):
    """Past everything that a test or an event loop may catch."""


def hang_up(*_):
    raise Hung(f"not done after {TEST_SECONDS_MAX} s")


class Outcomes(unittest.TextTestResult):
    """The outcomes, each in a line as soon as it is known."""

    def startTest(self, test):
        super().startTest(test)
        self.outcome = "passed"
        self.begin = time.monotonic()
        signal.alarm(TEST_SECONDS_MAX)

    def stopTest(self, test):
        signal.alarm(0)
        self.tell(self.outcome, test)
        super().stopTest(test)

    def tell(self, outcome, test):
        name = test.id().removeprefix("tests.")
        print(f"outcome\t{outcome}\t{name}", flush=True)

    def note(self, outcome, test, error):
        self.outcome = outcome
        print(f"--- {test.id()}: {outcome}\n{self._exc_info_to_string(error, test)}", flush=True)
        # A whole class or module that could not begin.
        if isinstance(test, unittest.suite._ErrorHolder):
            self.tell(outcome, test)

    def addError(self, test, err):
        super().addError(test, err)
        self.note("unfinished" if issubclass(err[0], Hung) else "failed", test, err)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note("failed", test, err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note("failed", subtest, err)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.outcome = "skipped"

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.outcome = "failed as expected"

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.outcome = "passed unexpectedly"


def main(names):
    signal.signal(signal.SIGALRM, hang_up)
    if not names:
        files = sorted(path.stem for path in pathlib.Path("tests").glob("test_*.py"))
        names = [name for name in files if name not in LEFT_OUT]
    tests = unittest.defaultTestLoader.loadTestsFromNames([f"tests.{name}" for name in names])
    with contextlib.redirect_stderr(sys.stdout):
        unittest.TextTestRunner(stream=io.StringIO(), resultclass=Outcomes).run(tests)


main(sys.argv[1:])
