"""plumb mcp and the protocol's public client (npm, @modelcontextprotocol/sdk), which checks every answer against its
schemas. Runs only in the long form: it installs the package into a temporary folder."""

import os
import pathlib
import shutil
import subprocess
import unittest

import recorded_run
import support

PACKAGE = "@modelcontextprotocol/sdk@1.32.2"


@unittest.skipUnless(os.environ.get("PLUMB_LONG") == "1", "the long form, with node and npm")
class PublicClient(unittest.TestCase):
    def test_every_answer_fits_its_schemas(self):
        with support.scratch() as folder, support.Server(folder) as server:
            subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix",
                            str(folder), PACKAGE], check=True, timeout=support.PATIENCE)
            recorded_run.train("night", server=server.address, record=folder / "record")
            shutil.copy(pathlib.Path(__file__).with_name("mcp_sdk_client.mjs"), folder)
            subprocess.run(["node", str(folder / "mcp_sdk_client.mjs"), support.program("plumb"), server.address,
                            str(folder / "record")], check=True, timeout=support.PATIENCE, cwd=folder)


if __name__ == "__main__":
    unittest.main()
