// Drives plumb mcp with the public client: node mcp_sdk_client.mjs PLUMB SERVER RECORD. The client
// parses each answer with the protocol's schemas, and structured answers with the tools' output
// schemas.
import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { LATEST_PROTOCOL_VERSION } from "@modelcontextprotocol/sdk/types.js";

const [plumb, server, record] = process.argv.slice(2);
const transport = new StdioClientTransport({ command: plumb, args: ["mcp", "--server", server], stderr: "ignore" });
const client = new Client({ name: "plumbline-test", version: "1" });
const problems = [];
client.onerror = (error) => problems.push(error);
await client.connect(transport);
assert.equal(client.getServerVersion().name, "plumbline");
assert.equal(transport.sessionId, undefined);
assert.ok(client.getInstructions().length > 0);
assert.equal(LATEST_PROTOCOL_VERSION, "2025-11-25", "a version that is not spoken here yet");
await client.ping();

const { tools } = await client.listTools();
assert.deepEqual(tools.map((tool) => tool.name).sort(),
  ["audit_path", "explain_rule", "get_finding", "get_series", "list_incidents", "list_runs"]);

async function call(name, args) {
  const result = await client.callTool({ name, arguments: args });
  assert.ok(!result.isError, JSON.stringify(result.content));
  return result.structuredContent;
}

let incidents = [];
for (let i = 0; i < 600 && incidents.length === 0; ++i) {
  ({ incidents } = await call("list_incidents", { run: "night", rule: "health/loss-non-finite" }).catch(() => ({ incidents: [] })));
  if (incidents.length === 0) await new Promise((wake) => setTimeout(wake, 100));
}
assert.equal(incidents.length, 1);
assert.equal((await call("list_runs", {})).runs[0].run, "night");
const { finding } = await call("get_finding", { fingerprint: incidents[0].finding });
assert.equal(finding.rule, "health/loss-non-finite");
assert.equal((await call("get_series", { run: "night", series: "loss" })).series[0].series, "loss");
assert.ok((await call("get_series", { run: "night" })).names.length >= 2);
assert.ok((await call("explain_rule", { rule: "non-finite" })).page.startsWith("# precision/non-finite"));
const audit = await call("audit_path", { path: record });
const same = audit.findings.find(({ rule }) => rule === "health/loss-non-finite");
assert.equal(same.fingerprint, incidents[0].finding);

const { resources } = await client.listResources();
for (const { uri, mimeType } of resources) {
  const { contents } = await client.readResource({ uri });
  assert.equal(contents[0].mimeType, mimeType);
}
assert.equal((await client.listResourceTemplates()).resourceTemplates.length, 1);
await assert.rejects(client.readResource({ uri: "plumbline://rules/no/such" }), { code: -32002 });
await assert.rejects(client.callTool({ name: "no_such_tool" }), { code: -32602 });
assert.equal((await client.callTool({ name: "get_finding", arguments: { fingerprint: 7 } })).isError, true);
await client.close();
assert.deepEqual(problems, []);
console.log(`${tools.length} tools, ${resources.length} resources match the protocol's schemas`);
