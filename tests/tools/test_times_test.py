"""tools/test_times on the files that CMake, ninja and CTest leave."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
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

    def write(self, name, text, ago):
        path = self.build / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (time.time() - ago,) * 2)

    def run_tool(self, *arguments):
        return subprocess.run([sys.executable, str(TOOL), *arguments], capture_output=True, text=True, check=True).stdout

    def test_phases_and_the_longest_first(self):
        self.write("build.ninja", "", 400)
        self.write(".ninja_log", NINJA_LOG, 160)
        self.write("Testing/Temporary/LastTest.log", TEST_LOG, 20)
        said = self.run_tool(str(self.build), "500", "40").splitlines()
        self.assertRegex(said[0], r"setup 40 s, configure (59|60|61) s, compile (239|240|241) s, tests (139|140|141) s, checks (19|20|21) s")
        self.assertEqual(said[1:4], ["The slowest of 2 tests, 13 s in all:", "     12.5 s  slow", "      0.2 s  quick"])
        self.assertEqual(said[4:], ["The heaviest of 2 objects, 6 s in all:", "      3.5 s  a/slow.cc.o", "      2.0 s  a/quick.cc.o"])

    def test_what_was_not_done_in_this_run_took_no_time(self):
        self.write("build.ninja", "", 9000)
        self.write(".ninja_log", NINJA_LOG, 9000)
        self.assertIn("setup 10 s, configure 0 s, compile 0 s, tests 0 s, checks 90 s", self.run_tool(str(self.build), "100", "10"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
