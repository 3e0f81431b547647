# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
"""
rdma_core_driver.py FOLDER MODULE DEVICE REPORT: runs one module of rdma-core's tests and writes one JSON line per test to REPORT as
soon as it is over, so that a crash loses nothing but the test that crashed. Status 0 when every test was run.
"""
import importlib
import json
import os
import sys
import types
import unittest


def main():
    folder, module, device, report = sys.argv[1:5]
    sys.dont_write_bytecode = True
    sys.path[:1] = [os.path.dirname(folder), folder]
    sys.argv[1:] = ['--dev', device, '--gid', '0']
    from args_parser import parser
    parser.parse_args()
    # The suite's own package imports all of its modules, which need more than this one does.
    package = types.ModuleType('tests')
    package.__path__ = [folder]
    sys.modules['tests'] = package
    loaded = importlib.import_module('tests.' + module)

    with open(report, 'w') as out:
        def say(test, outcome, why=''):
            out.write(json.dumps({'test': test.id(), 'outcome': outcome, 'why': why}) + '\n')
            out.flush()

        class Report(unittest.TextTestResult):
            def addSuccess(self, test):
                super().addSuccess(test)
                say(test, 'ok')

            def addError(self, test, err):
                super().addError(test, err)
                say(test, 'error', self._exc_info_to_string(err, test))

            def addFailure(self, test, err):
                super().addFailure(test, err)
                say(test, 'fail', self._exc_info_to_string(err, test))

            def addSubTest(self, test, subtest, err):
                super().addSubTest(test, subtest, err)
                if err:
                    say(test, 'fail', self._exc_info_to_string(err, test))

            def addSkip(self, test, reason):
                super().addSkip(test, reason)
                say(test, 'skip', reason)

        suite = unittest.defaultTestLoader.loadTestsFromModule(loaded)
        unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=Report).run(suite)
    return 0


if __name__ == '__main__':
    sys.exit(main())
