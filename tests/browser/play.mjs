// Plays the clients of clients.js in a headless Chromium against the server at the address that is
// given; the file that is given beside it holds the descriptors of its contract. Connections are cut where
// the server speaks plain HTTP: a client of TLS is not heard on the way.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createServer, connect } from "node:net";
import { join } from "node:path";

import { build } from "esbuild";
import { chromium } from "playwright-core";

const [address, descriptors] = process.argv.slice(2);
const bundled = await build({
  absWorkingDir: import.meta.dirname,
  entryPoints: ["clients.js"],
  bundle: true,
  write: false,
  format: "iife",
  target: "es2022",
});
const { origin, cut, cuts } = address.startsWith("https:")
  ? { origin: address, cut() {}, cuts: 0 }
  : { ...(await startProxy(new URL(address))), cuts: 5 };
const browser = await chromium.launch({
  executablePath: process.env.TAVERN_TEST_CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"],
});
const context = await browser.newContext({ bypassCSP: true, ignoreHTTPSErrors: true });
const page = await context.newPage();
page.setDefaultTimeout(60_000);

const GATEWAY = "tavern.gateway.v1.GatewayService";
const kinds = () => page.evaluate(() => clients.kinds);
const unary = (...call) => page.evaluate((call) => clients.unary(...call), call);
const stream = (...call) => page.evaluate((call) => clients.stream(...call), call);
const refusal = (...call) => page.evaluate((call) => clients.refusal(...call), call);

/** Text with calls that each give events. */
const calls = (count) => ({
  calls: { text: `<ACTION>${"<system:get_current_time/>".repeat(count)}</ACTION>`, scope: { toolIds: ["system:get_current_time"] } },
});

/** A script that writes two lines, one second apart. */
const SLOW = {
  calls: {
    text: `<ACTION><CodeInterpreter:execute><language>python</language><code>
import time
print('first', flush=True)
time.sleep(1)
print('second', flush=True)
</code></CodeInterpreter:execute></ACTION>`,
  },
};

/** A method without side effects of every public service that has one. */
const EVERYWHERE = [
  ["tavern.registry.v1.ToolRegistryService/ListTools", "tools"],
  ["tavern.registry.v1.CallService/ListCalls", undefined],
  ["tavern.registry.v1.ApprovalService/ListApprovals", undefined],
  ["tavern.workflow.v1.WorkflowService/ListWorkflows", "workflows"],
  ["tavern.workflow.v1.ScheduleService/ListSchedules", undefined],
  ["tavern.sandbox.v1.ScriptSandboxService/ListRuntimes", "runtimes"],
  ["tavern.sandbox.v1.BlobService/StatBlobs", undefined, { callerId: "anyone", sha256: ["0".repeat(64)] }],
  ["tavern.sandbox.v1.SessionService/ListSessions", undefined, { callerId: "anyone" }],
  ["tavern.agent.v1.ProfileService/ListProfiles", "profiles"],
  ["tavern.agent.v1.ConversationService/ListConversations", undefined],
  ["tavern.agent.v1.ModelService/ListModels", "models"],
  ["tavern.agent.v1.SceneService/ListScenes", undefined],
  ["tavern.run.v1.RunService/ListRuns", undefined],
];

try {
  await page.goto(`${origin}/console`);
  await page.addScriptTag({ content: bundled.outputFiles[0].text });
  await page.evaluate((set) => clients.load(set), (await readFile(descriptors)).toString("base64"));

  for (const kind of await kinds()) {
    const parsed = await unary(kind, `${GATEWAY}/ParseText`, { text: "Hello.", catalogue: {} });
    assert.equal(parsed.parsed.responseText, "Hello.", kind);

    // Every service is reached, wherever it runs.
    for (const [path, field, request = {}] of EVERYWHERE) {
      const answer = await unary(kind, path, request);
      if (field) assert.ok(answer[field].length > 0, `${kind}: ${path}`);
    }

    const ofNone = { conversationId: "none", profileId: "none" };
    const stateless = await refusal(kind, "tavern.agent.v1.StateService/ListPrivateStateVersions", ofNone);
    assert.equal(stateless.code, 5, `${kind}: ${JSON.stringify(stateless)}`);

    // An error has its code, its words and its details.
    const missing = await refusal(kind, "tavern.run.v1.RunService/GetRun", { runId: "call_01890a5d-ac96-774b-bcce-b302099a8057" });
    assert.equal(missing.code, 5, `${kind}: ${JSON.stringify(missing)}`);
    if (missing.message !== undefined) assert.ok(missing.details.includes("google.rpc.ErrorInfo"), kind);

    // Messages of a stream come one after the other, while the run continues.
    const { messages, ended } = await stream(kind, `${GATEWAY}/InvokeText`, SLOW);
    assert.equal(ended, "end", kind);
    const sequences = messages.flatMap(({ record }) => (record.event ? [Number(record.event.sequence)] : []));
    assert.deepEqual(sequences, sequences.map((_, at) => at + 1), kind);
    assert.equal(messages.at(-1).record.terminal.run.state, "RUN_STATE_SUCCEEDED", kind);
    const written = (line) => messages.find(({ record }) => record.event?.outputChunk?.text?.includes(line));
    assert.ok(written("second").at - written("first").at > 500, `${kind}: the lines came together`);

    // A client that has enough ends its stream.
    const few = await stream(kind, `${GATEWAY}/InvokeText`, SLOW, 2);
    assert.ok(few.messages.length < messages.length, kind);
    assert.match(few.ended, /^(canceled|cancelled)$/, kind);
  }

  // An EventSource whose connection is cut again and again sees every event once, in order.
  const { run } = await unary("Connect, JSON", `${GATEWAY}/StartText`, calls(16));
  cut(cuts);
  const seen = await page.evaluate((runId) => clients.events(runId), run.runId);
  assert.deepEqual(seen.sequences, seen.sequences.map((_, at) => at + 1));
  assert.equal(seen.sequences.length, Number(seen.terminal.run.lastSequence));
  assert.equal(seen.connections, cuts + 1, `it was cut ${cuts} times`);
} finally {
  await browser.close();
}
process.exit(0);

/** Passes connections on to a server; `cut(n)` lets the next n event streams break off early. */
async function startProxy(target) {
  let cuts = 0;
  const proxy = createServer((client) => {
    const server = connect(Number(target.port), target.hostname);
    let left = Infinity;
    client.on("data", (bytes) => {
      if (/^GET \/v1\/runs\/[^ ]*\/events/.test(bytes.toString("latin1")) && cuts > 0) {
        cuts--;
        left = 3_000;
      }
      server.write(bytes);
    });
    server.on("data", (bytes) => {
      client.write(bytes.subarray(0, left));
      left -= bytes.length;
      if (left <= 0) client.end(() => client.destroy());
    });
    for (const [one, other] of [[client, server], [server, client]]) {
      one.on("error", () => other.destroy());
      one.on("close", () => other.destroy());
    }
  });
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  return { origin: `http://127.0.0.1:${proxy.address().port}`, cut: (count) => (cuts = count) };
}
