"""plumb mcp as an editor uses it, with a real plumbd to which a run has reported."""

import json
import pathlib
import unittest

import jsonschema
import recorded_run
import support
from mcp_client import Client
from recorded_run import HOSTILE, ONSET, STEPS


class Served(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = support.scratch()
        cls.folder = cls.scratch.__enter__()
        cls.server = support.Server(cls.folder, "--data", cls.folder / "data")
        for name in ("night", HOSTILE):
            recorded_run.train(name, server=cls.server.address, record=cls.folder / f"record{len(name)}")
        cls.client = Client("--server", cls.server.address)
        cls.tools = {t["name"]: t for t in cls.client.request("tools/list")["result"]["tools"]}
        support.wait_until("both runs to be judged", lambda: len(cls.answer("list_incidents")["incidents"]) >= 2)

    @classmethod
    def tearDownClass(cls):
        status = cls.client.close()
        cls.server.kill()
        cls.scratch.__exit__(None, None, None)
        assert status == 0, status

    @classmethod
    def answer(cls, tool, **arguments):
        """Returns the structured answer, which its output schema describes and its text repeats."""
        jsonschema.validate(arguments, cls.tools[tool]["inputSchema"])
        result = cls.client.call(tool, **arguments)
        assert not result["isError"], result
        jsonschema.validate(result["structuredContent"], cls.tools[tool]["outputSchema"])
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        return result["structuredContent"]

    def failure(self, tool, **arguments):
        result = self.client.call(tool, **arguments)
        self.assertTrue(result["isError"], result)
        return result["content"][0]["text"]

    def test_schemas_are_schemas(self):
        for tool in self.tools.values():
            for schema in (tool["inputSchema"], tool["outputSchema"]):
                jsonschema.Draft202012Validator.check_schema(schema)

    def test_runs(self):
        answer = self.answer("list_runs")
        self.assertEqual({r["run"] for r in answer["runs"]}, {"night", HOSTILE})
        self.assertTrue(answer["caught_up"])
        self.assertEqual({r["newest_step"] for r in answer["runs"]}, {STEPS - 1})

    def test_incidents_and_their_findings(self):
        incidents = self.answer("list_incidents", run="night", rule="health/loss-non*")["incidents"]
        self.assertEqual([i["rule"] for i in incidents], ["health/loss-non-finite"])
        for fingerprint in (incidents[0]["finding"], incidents[0]["finding"][:12], incidents[0]["fingerprint"]):
            finding = self.answer("get_finding", fingerprint=fingerprint)["finding"]
            self.assertEqual(finding["site"]["step_first"], ONSET)
            self.assertTrue(finding["witness"])
            self.assertEqual(finding["site"]["run"], "night")
        self.assertEqual(self.answer("list_incidents", run="night", rule="health/none*")["incidents"], [])
        answer = self.answer("list_incidents", limit=1)
        self.assertEqual(len(answer["incidents"]), 1)
        self.assertGreaterEqual(answer["omitted"], 1)
        self.assertIn('no run "unknown"', self.failure("list_incidents", run="unknown"))
        self.assertIn("expected a fingerprint", self.failure("get_finding", fingerprint="0" * 32))
        self.assertIn("expected one of", self.failure("list_incidents", min_level="loud"))

    def test_series(self):
        names = self.answer("get_series", run="night")["names"]
        self.assertLessEqual({"loss", "lr"}, {n["series"] for n in names})
        series = self.answer("get_series", run="night", series="loss")["series"][0]
        self.assertEqual(series["series"], "loss")
        few = self.answer("get_series", run=HOSTILE, series="l*", cells=10)
        self.assertLessEqual(sum(len(s["step"]) for s in few["series"]), 10)
        self.assertEqual({s["series"] for s in few["series"]}, {"loss", "lr"})
        part = self.answer("get_series", run="night", series="lr", **{"from": 5, "to": 7}, over_ranks=False)
        self.assertEqual(part["series"][0]["step"], [5, 6, 7])
        self.assertIn("no values", self.failure("get_series", run="night", series="nothing"))
        self.assertIn("expected an integer from 1 to 4000", self.failure("get_series", run="night", cells=10**9))

    def test_what_needs_no_server(self):
        page = self.answer("explain_rule", rule="non-finite")
        self.assertEqual(page["id"], "precision/non-finite")
        audit = self.answer("audit_path", path=str(self.folder / "record5"))
        found = {finding["rule"]: finding for finding in audit["findings"]}
        live = self.answer("list_incidents", run="night", rule="health/loss-non-finite")["incidents"][0]
        self.assertEqual(found["health/loss-non-finite"]["fingerprint"], live["finding"])

    def test_reports_of_what_the_server_holds(self):
        of_run = ("audit", "--server", self.server.address, "--run", "night", "--quiet", "--format")
        status, sarif, _ = recorded_run.plumb(*of_run, "sarif")
        self.assertEqual(status, 1)
        subset = json.loads((pathlib.Path(__file__).parent / "data" / "sarif-2.1.0-subset.schema.json").read_text())
        jsonschema.Draft7Validator(subset).validate(json.loads(sarif))
        artifact = json.loads(sarif)["runs"][0]["artifacts"][0]["location"]["uri"]
        self.assertEqual(artifact, f"plumbd://{self.server.address.replace(':', '%3A')}/night")
        self.assertIn('class="onset"', recorded_run.plumb(*of_run, "html")[1])
        self.assertIn("  series     loss, steps 0-59", recorded_run.plumb(*of_run, "text")[1])

    def test_resources(self):
        resources = self.client.request("resources/list")["result"]["resources"]
        uri = next(r["uri"] for r in resources if r["name"] == "precision/non-finite")
        content = self.client.request("resources/read", uri=uri)["result"]["contents"][0]
        self.assertTrue(content["text"].startswith("# precision/non-finite"))


class Alone(unittest.TestCase):
    def test_without_a_server(self):
        with Client() as client:
            for tool, arguments in (("list_runs", {}), ("list_incidents", {}), ("get_finding", {"fingerprint": "a"}),
                                    ("get_series", {"run": "r"})):
                result = client.call(tool, **arguments)
                self.assertTrue(result["isError"])
                self.assertIn("--server", result["content"][0]["text"])
            self.assertFalse(client.call("explain_rule", rule="moe-future-leak")["isError"])
            self.assertEqual(client.close(), 0)

    def test_a_server_that_is_gone_is_an_error_and_no_end(self):
        with Client("--server", "127.0.0.1:1") as client:
            result = client.call("list_runs")
            self.assertTrue(result["isError"])
            self.assertIn("no server answers", result["content"][0]["text"])
            self.assertEqual(client.request("ping")["result"], {})

    def test_broken_clients(self):
        with Client(version="2025-03-26") as client:
            lines = [b"\xff\xfe", b"{", b"[" * 100_000, b"{\"a\":" * 50_000, b"x" * (5 << 20), b"\0\0\0", b"[]", b"null",
                     b"{\"jsonrpc\":\"2.0\",\"id\":1e999,\"method\":\"ping\"}"]
            for line in lines:
                client.send(line)
                self.assertIn("error", client.receive(), line[:20])
            client.send(b"\r\n   ")
            client.send('[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":"b","method":"ping"}]')
            self.assertEqual([m["id"] for m in client.receive()], [1, "b"])
            self.assertEqual(client.request("ping")["result"], {})
            # A last line without a line end is answered, then the program ends.
            client.process.stdin.write(b'{"jsonrpc":"2.0","id":"z","method":"ping"}')
            client.process.stdin.close()
            self.assertEqual(json.loads(client.process.stdout.read())["id"], "z")
            self.assertEqual(client.process.wait(timeout=support.PATIENCE), 0)

    def test_standard_output_that_is_closed_ends_it(self):
        with Client() as client:
            client.process.stdout.close()
            try:
                for i in range(10_000):
                    client.send(json.dumps({"jsonrpc": "2.0", "id": i, "method": "ping"}))
                client.process.stdin.close()
            except BrokenPipeError:
                pass
            self.assertEqual(client.process.wait(timeout=support.PATIENCE), 2)


if __name__ == "__main__":
    support.main()
