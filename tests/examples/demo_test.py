"""tools/demo shows the leak of a leaking router and no finding for a clean one; it refuses invalid options."""

import os
import pathlib
import subprocess
import unittest

from finding_of_readme import differences, finding_of_readme
import support

DEMO = support.REPOSITORY / "tools" / "demo"


def demo(folder, **settings):
    build = pathlib.Path(support.program("plumb")).parents[1]
    environment = dict(os.environ, PLUMBLINE_DEMO_BUILD=str(build), PLUMBLINE_DEMO_SETUP="no",
                       PLUMBLINE_DEMO_DIR=str(folder / "demo"), PLUMBLINE_DEMO_SECONDS="5")
    environment |= {f"PLUMBLINE_DEMO_{name}": value for name, value in settings.items()}
    return subprocess.run([str(DEMO)], cwd="/", env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=2 * support.PATIENCE)


class Demo(unittest.TestCase):
    def test_a_leak_is_shown_live_with_its_witness_and_found_again_offline(self):
        with support.scratch() as folder:
            done = demo(folder)
            self.assertEqual(done.returncode, 0, done.stdout)
            whole = support.plumb("audit", folder / "demo" / "record", "-v", statuses=(1,))
        self.assertRegex(whole, r"witness +token \d+ .*lost expert \d+ to token")
        for part in ("error  causality/moe-future-leak  layers.0 routing",
                     "live and offline", "s after that step had ended"):
            self.assertIn(part, done.stdout)
        self.assertEqual([], differences(done.stdout, finding_of_readme()), done.stdout)
        self.assertRegex(done.stdout, r"on a page while plumbd runs: http://127|page of plumbd was not built")
        self.assertNotIn("\x1b[", done.stdout)

    def test_a_clean_router_is_not_accused(self):
        with support.scratch() as folder:
            done = demo(folder, ROUTER="dropless")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertNotIn("causality/moe-future-leak  layers", done.stdout)

    def test_nonsense_is_refused_with_what_was_expected(self):
        with support.scratch() as folder:
            for name, value, stated in (("SECONDS", "1", "expected a whole number, 5 or more"),
                                      ("RANKS", "none", "expected 1 or more"),
                                      ("ROUTER", "switch", "expected dropless"),
                                      ("BUILD", str(folder), "does not hold plumb")):
                with self.subTest(name):
                    done = demo(folder, **{name: value})
                    self.assertNotEqual(done.returncode, 0)
                    self.assertIn(stated, done.stdout)


if __name__ == "__main__":
    support.main()
