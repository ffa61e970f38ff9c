"""Checks the Debian package with lintian: no error and no warning that packaging/debian/lintian-overrides does not
explain."""

import shutil

from support import Case, long_form, main, product, run, stated


class Lintian(Case):
    def setUp(self):
        if shutil.which("lintian") is None:
            self.skipTest("lintian is not installed; tools/setup installs it")

    @long_form
    def test_no_errors_and_no_warnings(self):
        done = run("lintian", "--allow-root", "--no-cfg", "--fail-on", "error,warning", "--color", "never", product("*.deb"), timeout=540)
        self.assertEqual(done.returncode, 0, stated(done))
        self.assertNotIn("mismatched-override", done.stdout)
        self.assertNotIn("unused-override", done.stdout)


if __name__ == "__main__":
    main()
