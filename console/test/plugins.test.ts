import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { answers } from "../src/api/framed.ts";
import type { Plugin } from "../src/api/types.ts";
import { access } from "../src/model/caller.ts";
import { discardPlan, failuresOf, install, keyOf, plan, planned, plugins, stateOfHook, statesOf, waitingDirectory, watch } from "../src/model/plugins.ts";

/** Writes a message with its head. */
function framed(message: object, flags = 0): Buffer {
  const text = Buffer.from(JSON.stringify(message));
  const head = Buffer.alloc(5);
  head.writeUInt8(flags, 0);
  head.writeUInt32BE(text.length, 1);
  return Buffer.concat([head, text]);
}

/** Reads the messages of a request. */
function messages(body: Buffer): { header?: object; chunk?: string }[] {
  if (body.length === 0) return [];
  const end = 5 + body.readUInt32BE(1);
  return [JSON.parse(body.subarray(5, end).toString()), ...messages(body.subarray(end))];
}

const sent: { path: string; body: Buffer }[] = [];

/** Answers every request with bytes, in pieces of `size`. */
function answer(bytes: Buffer, size = bytes.length, status = 200): void {
  const fetch = async (path: string, init: RequestInit) => {
    sent.push({ path, body: Buffer.from(await new Response(init.body ?? null).arrayBuffer()) });
    const cut = new ReadableStream<Uint8Array>({
      start: (pieces) => {
        for (let at = 0; at < bytes.length; at += size) pieces.enqueue(bytes.subarray(at, at + size));
        pieces.close();
      },
    });
    return new Response(cut, { status });
  };
  Object.assign(globalThis, { fetch });
}

async function all(method: string): Promise<unknown[]> {
  const found = [];
  for await (const message of answers(method, [{}])) found.push(message);
  return found;
}

beforeEach(() => {
  sent.length = 0;
  discardPlan();
});

test("messages are read however they are cut, up to the end of the answer", async () => {
  const stream = Buffer.concat([framed({ revision: "1" }), framed({ text: "备注" }), framed({}, 2)]);
  for (const size of [1, 3, 7, stream.length]) {
    answer(stream, size);
    assert.deepEqual(await all("A/B"), [{ revision: "1" }, { text: "备注" }]);
  }
});

test("a stream that is refused or breaks off fails", async () => {
  answer(Buffer.concat([framed({}), framed({ error: { code: "unavailable", message: "away" } }, 2)]));
  await assert.rejects(all("A/B"), { code: "unavailable", message: "away" });
  answer(framed({}));
  await assert.rejects(all("A/B"), /the connection was lost/);
  answer(Buffer.from('{"code":"not_found","message":"no such path"}'), 100, 404);
  await assert.rejects(all("A/B"), { code: "not_found", message: "no such path" });
});

test("an archive is sent in pieces behind a header, and its plan is shown", async () => {
  answer(Buffer.concat([framed({ plan: { planDigest: "sha256:1", plugin: "dice" } }), framed({}, 2)]));
  const bytes = Buffer.alloc(1 << 20, 7);
  await plan(new Blob([bytes]), "dice.zip");
  assert.equal(planned.value?.plan?.planDigest, "sha256:1");
  const [header, ...chunks] = messages(sent[0]?.body ?? Buffer.alloc(0));
  assert.deepEqual(header, { header: {} });
  assert.equal(chunks.length, 3);
  assert.ok(Buffer.concat(chunks.map(({ chunk = "" }) => Buffer.from(chunk, "base64"))).equals(bytes));

  answer(Buffer.from('{"plugin":{"name":"dice"}}'));
  assert.equal(await install(), "dice");
  assert.equal(planned.value, undefined);
});

test("an archive that is too large is not sent", async () => {
  await plan(new Blob([Buffer.alloc((20 << 20) + 1)]), "large.zip");
  assert.match(planned.value?.problem ?? "", /at most 20971520/);
  assert.equal(sent.length, 0);
});

test("a refused plan stays, with every reason", async () => {
  answer(Buffer.concat([framed({ plan: { planDigest: "sha256:1", plugin: "dice" } }), framed({}, 2)]));
  await plan("dice", "dice");
  assert.deepEqual(messages(sent[0]?.body ?? Buffer.alloc(0)), [{ header: { directory: "dice" } }]);
  const details = [{ debug: { fieldViolations: [{ field: "plugin.yaml/name", description: "is taken" }] } }];
  answer(Buffer.from(JSON.stringify({ code: "failed_precondition", message: "the package cannot be installed", details })), 1000, 400);
  assert.equal(await install(), undefined);
  assert.equal(planned.value?.problem, "the package cannot be installed");
  assert.deepEqual(planned.value?.refused, [{ path: "plugin.yaml/name", message: "is taken" }]);
});

test("a watch continues after it broke off, until it is left", async () => {
  access.value = { state: "in", problem: "" };
  answer(framed({ plugins: [{ name: "dice", loaded: true }] }));
  const leave = watch();
  const until = async (isMet: () => boolean) => {
    for (let looks = 0; !isMet() && looks < 500; looks += 1) await new Promise((resolve) => setTimeout(resolve, 10));
  };
  await until(() => plugins.value.problem !== "");
  assert.equal(plugins.value.problem, "the connection was lost");
  assert.deepEqual(plugins.value.all?.map(keyOf), ["dice"]);
  answer(Buffer.concat([framed({ plugins: [] }), framed({}, 2)]));
  await until(() => plugins.value.problem === "");
  assert.deepEqual(plugins.value, { all: [], problem: "" });
  leave();
  const asked = sent.length;
  await new Promise((resolve) => setTimeout(resolve, 1_100));
  assert.equal(sent.length, asked);
});

test("a plugin has an address and its states in words, and waits with a directory only", () => {
  const cases: [Plugin, string, string[], string][] = [
    [{ name: "dice", loaded: true }, "dice", ["loaded"], ""],
    [{ directory: "dice" }, "dice/", ["left out"], "dice"],
    [{ name: "dice", directory: "d", loaded: true, hasChanges: true, disabled: true }, "dice", ["switched off", "has changes"], "d"],
    [{ name: "dice", loaded: true, missingOptions: ["extensions.dice.sides"] }, "dice", ["needs options"], ""],
  ];
  for (const [plugin, key, states, directory] of cases) {
    assert.deepEqual([keyOf(plugin), statesOf(plugin), waitingDirectory(plugin)], [key, states, directory]);
  }
});

test("a hook that fails says how often, and one that is suspended what happens without it", () => {
  const failing = { hook: "p/h", failures: 1, lastFailure: "hook_timeout", onFailure: "deny" };
  const suspended = { ...failing, failures: 5, suspended: true, onFailure: "skip" };
  assert.equal(stateOfHook({ hook: "p/h" }), "asked");
  assert.equal(stateOfHook(failing), "fails");
  assert.equal(stateOfHook(suspended), "suspended");
  assert.equal(stateOfHook({ ...suspended, inactiveReason: "p is switched off" }), "switched off");
  assert.equal(failuresOf(failing), "1 failure in a row, the last hook_timeout: acts are refused.");
  assert.equal(
    failuresOf(suspended),
    "5 failures in a row, the last hook_timeout: it is passed over without a question, but for a probe each 30 s.",
  );
});
