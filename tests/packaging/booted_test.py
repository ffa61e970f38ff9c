"""Tests the Debian package under a running systemd: the shipped unit, its user and its secrets; backup and restore
exactly as docs/operating.md and docs/security.md describe them. With PLUMB_LONG=1, if a container can be booted."""

import re
import time

from machine import machine, missing
from support import Case, ROOT, long_form, main, product, stated

EVIDENCE = """
import plumbline
run = plumbline.init(run="exp1", server="127.0.0.1:7433", rank=0, world_size=1)
for step in range({first}, {last}):
    with run.step(step):
        run.scalar("loss", 0.5 * step)
assert run.finish()
"""


def commands(document, heading, number=0):
    """Returns the lines of a block of commands below a heading of docs/, without their comments."""
    text = (ROOT / "docs" / document).read_text()
    section = re.split(rf"(?m)^## {re.escape(heading)}$", text)[1].split("\n## ")[0]
    blocks = [block for block in re.findall(r"(?m)(?:^    .+\n)+", section)]
    return [line.strip() for line in blocks[number].splitlines() if not line.strip().startswith("#")]


def toml(document, heading):
    """Returns the block of a configuration below a heading."""
    text = (ROOT / "docs" / document).read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return next(
        re.sub(r"(?m)^    ", "", block) for block in re.findall(r"(?m)(?:^    .+\n)+", text) if "[listen]" in block
    )


class Booted(Case):
    def setUp(self):
        why = missing()
        if why:
            self.skipTest(why)
        context = machine()
        self.machine, why = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        if why:
            self.skipTest(why)
        deb = product("*.deb")
        self.machine.put(deb, f"/root/{deb.name}")
        self.do("apt", "install", "--yes", f"/root/{deb.name}")

    def do(self, *command, **options):
        return self.ok(self.machine.run(*command, **options))

    def shell(self, lines):
        """Runs the lines like an operator: one shell for all, which ends at the first that fails."""
        return self.do("bash", "-ec", "\n".join(lines))

    def serve(self):
        self.do("systemctl", "enable", "--now", "plumbd")
        self.active()

    def active(self):
        state = self.machine.run("systemctl", "show", "--property=ActiveState,NRestarts,Result", "plumbd").stdout
        log = self.machine.run("journalctl", "--unit=plumbd", "--no-pager", "--lines=30").stdout
        self.assertEqual(sorted(state.split()), ["ActiveState=active", "NRestarts=0", "Result=success"], log)

    def train(self, first, last):
        self.do("python3", "-c", EVIDENCE.format(first=first, last=last))
        end = time.monotonic() + 60
        while len(self.values()) < last and time.monotonic() < end:
            time.sleep(0.2)
        self.assertEqual(self.values(), {step: 0.5 * step for step in range(last)})

    def values(self):
        done = self.machine.run("plumb", "query", "series", "loss", "--run", "exp1", "--format", "csv")
        rows = (line.split(",") for line in done.stdout.splitlines() if ",trainer," in line)
        return {int(row[4]): float(row[6]) for row in rows}


class BackupAndRestore(Booted):
    @long_form
    def test_under_the_shipped_unit(self):
        self.serve()
        self.train(0, 50)
        backup = commands("operating.md", "Backup")
        restore = commands("operating.md", "Restore")
        aside = commands("operating.md", "Restore", 1)
        self.shell(backup)
        self.active()  # the server has continued meanwhile
        held = self.values()

        # The data directory is damaged, so the remaining files are moved aside.
        self.do("systemctl", "stop", "plumbd")
        self.do("bash", "-c", "rm -r /var/lib/plumbd/journal")
        refused = self.machine.run(*restore[1].split())
        self.assertEqual(refused.returncode, 1, stated(refused))
        self.assertIn("expected an empty folder, found", refused.stderr)
        self.shell([*aside, *restore])
        self.active()
        self.assertEqual(self.values(), held)
        self.assertTrue((self.machine.path / "var/lib/plumbd").is_symlink())
        self.assertTrue(any((self.machine.path / "var/lib/plumbd.old").iterdir()))

        # The whole directory is gone, including the symlink, as on a new host.
        self.do("systemctl", "stop", "plumbd")
        self.do("rm", "-r", "/var/lib/plumbd", "/var/lib/private/plumbd")
        self.shell(restore)
        self.active()
        self.assertEqual(self.values(), held)

        # The folder is gone, but its symlink exists.
        self.do("systemctl", "stop", "plumbd")
        self.do("rm", "-r", "/var/lib/private/plumbd")
        self.shell(restore)
        self.active()
        self.assertEqual(self.values(), held)
        # The server continues, and can be backed up again to the same place.
        self.do("plumb", "doctor", "--server", "127.0.0.1:7433")
        self.shell(backup)

    @long_form
    def test_a_server_in_use_is_not_restored(self):
        self.serve()
        self.train(0, 5)
        self.shell(commands("operating.md", "Backup"))
        refused = self.machine.run(*commands("operating.md", "Restore")[1].split())
        self.assertEqual(refused.returncode, 1, stated(refused))
        self.assertIn("another plumbd uses this data directory", refused.stderr)
        self.active()


class Secrets(Booted):
    @long_form
    def test_keys_and_tokens_as_documented_are_read_by_the_unit(self):
        self.shell(commands("security.md", "Turning it on"))
        config = self.machine.path / "etc/plumbline/plumbd.toml"
        text = re.sub(r"(?m)^client_ca.*\n", "", toml("security.md", "Turning it on").split("[[access]]\nname = \"ops\"")[0])
        config.write_text(text.replace('"write"', '"read", "write"').replace('"exp-*"', '"*"'))
        self.serve()
        environment = {
            "PLUMBLINE_TLS_CA": "/etc/plumbline/server.pem",
            "PLUMBLINE_TOKEN_FILE": "/etc/plumbline/agents.token",
        }
        self.do("plumb", "doctor", "--server", "localhost:7433", environment=environment)
        # A revoked token is refused without a restart, and no other user can read what the unit can.
        self.do("bash", "-c", ": > /etc/plumbline/agents.tokens")
        time.sleep(3)
        refused = self.machine.run("plumb", "runs", "--server", "localhost:7433", environment=environment)
        self.assertNotEqual(refused.returncode, 0, stated(refused))
        for name in ("server.key", "agents.tokens", "agents.token"):
            seen = self.machine.run("setpriv", "--reuid=65534", "--clear-groups", "cat", f"/etc/plumbline/{name}")
            self.assertNotEqual(seen.returncode, 0, name)
        self.active()


if __name__ == "__main__":
    main()
