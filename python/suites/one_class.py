"""Runs tests of one class of a module in this process, and writes a line to a file for each event.

``one_class.py MODULE`` prints the tests of a module. ``one_class.py MODULE CLASS FILE TEST…`` runs
these tests of a class, and writes their events to ``FILE``.
"""

import importlib
import json
import sys
import unittest


class Events(unittest.TestResult):
    def __init__(self, file):
        super().__init__()
        self.file = file

    def write(self, test, event, text=""):
        self.file.write(json.dumps([test._testMethodName, event, text]) + "\n")
        self.file.flush()

    def startTest(self, test):
        super().startTest(test)
        self.failed = None
        self.skipped_because = None
        self.write(test, "started")

    def stopTest(self, test):
        super().stopTest(test)
        if self.failed is not None:
            self.write(test, "fails", self.failed)
        elif self.skipped_because is not None:
            self.write(test, "skipped", self.skipped_because)
        else:
            self.write(test, "passes")

    def addError(self, test, error):
        super().addError(test, error)
        self.failed = self._exc_info_to_string(error, test)

    addFailure = addError

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.failed = self._exc_info_to_string(error, test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.skipped_because = reason

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.failed = "passes, but is expected to fail"


def main():
    # torch's test utilities read the command line when they are imported.
    module, *arguments = sys.argv[1:]
    del sys.argv[1:]
    module = importlib.import_module(module)
    loader = unittest.TestLoader()
    if not arguments:
        for name, kind in vars(module).items():
            if isinstance(kind, type) and issubclass(kind, unittest.TestCase) and kind.__module__ == module.__name__:
                for test in loader.getTestCaseNames(kind):
                    print(f"{name}.{test}")
        return
    name, path, *tests = arguments
    kind = getattr(module, name)
    with open(path, "w") as file:
        unittest.TestSuite(map(kind, tests)).run(Events(file))


if __name__ == "__main__":
    main()
