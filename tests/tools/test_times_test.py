"""Tests tools/test_times on files of CMake, ninja and CTest."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "test_times"

NINJA_LOG = ("# ninja log v5\n0\t9000\t1\ta/slow.cc.o\tff\n10\t2010\t1\ta/quick.cc.o\tfe\n"
             "0\t3500\t2\ta/slow.cc.o\tff\n0\t60000\t3\tbin/program\tfd\nbroken line\n")
TEST_LOG = """Start testing: now
----------------------------------------------------------
1/2 Testing: quick
1/2 Test: quick
Output:
Test time = 77.00 sec is what the test printed
<end of output>
Test time =   0.25 sec
----------------------------------------------------------
2/2 Testing: slow
Test time =  12.50 sec
"""


class TestTimes(unittest.TestCase):
    def setUp(self):
        self.build = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def write(self, name, text):
        path = self.build / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run_tool(self, *arguments, status=0):
        done = subprocess.run([sys.executable, str(TOOL), *arguments], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout

    def test_phases_and_the_longest_first(self):
        self.write(".ninja_log", NINJA_LOG)
        self.write("Testing/Temporary/LastTest.log", TEST_LOG)
        lines = self.run_tool(str(self.build), "setup=40", "build=300", "tests=140").splitlines()
        self.assertEqual(lines[0], "Where the time went: setup 40 s, build 300 s, tests 140 s")
        self.assertEqual(lines[1:4], ["The slowest of 2 tests, 13 s in all:", "     12.5 s  slow", "      0.2 s  quick"])
        self.assertEqual(lines[4:], ["The heaviest of 2 objects, 6 s in all:", "      3.5 s  a/slow.cc.o", "      2.0 s  a/quick.cc.o"])

    def test_the_ends_of_failed_tests_are_repeated(self):
        tests = "".join(f"1/3 Testing: {name}\n1/3 Test: {name}\nOutput:\n-----\n{output}\n<end of output>\nTest time =   0.10 sec\n-----\nTest {verdict}.\n"
                        for name, output, verdict in (("good", "of good", "Passed"), ("bad", "\n".join(f"line {k}" for k in range(60)), "Failed"),
                                                      ("left", "no registry", "Skipped")))  # fmt: skip
        self.write("Testing/Temporary/LastTest.log", tests)
        lines = self.run_tool(str(self.build), "tests=1").splitlines()
        self.assertEqual(lines[0], "The end of bad, which failed:")
        self.assertEqual((lines[1], lines[25]), ("  line 35", "  line 59"))
        self.assertTrue(lines[26].startswith("Where the time went"), lines[26])

    def test_a_phase_without_its_seconds_is_refused(self):
        self.run_tool(str(self.build), "setup", status=1)
        self.run_tool(str(self.build), status=1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
