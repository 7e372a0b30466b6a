import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";

import { call } from "../src/api/connect.ts";
import type { Caller } from "../src/api/types.ts";
import { access, ask, isUnlocked, login, logout, may } from "../src/model/caller.ts";
import { follow } from "../src/model/run.ts";
import { Door } from "./door.ts";

const ADA: Caller = { principal: "ada", roles: ["invoker"], permissions: ["read", "invoke"] };
const MARA: Caller = { principal: "mara", roles: ["viewer"], permissions: ["read"] };

let door: Door;

beforeEach(() => {
  door = new Door({ "key of ada": ADA, "key of mara": MARA });
  access.value = { state: "asking", problem: "" };
});

const GET_CALLER = "/tavern.registry.v1.IdentityService/GetCaller";

test("a server without keys asks for none", async () => {
  door.admit({ principal: "local", open: true, permissions: ["read", "invoke", "define", "approve", "operate", "administer"] });
  await ask();
  assert.equal(access.value.state, "in");
  assert.ok(isUnlocked() && may("administer"));
});

test("a server with keys asks for one, and the key is in one body and nowhere else", async () => {
  await ask();
  assert.deepEqual(access.value, { state: "out", problem: "" });
  await login("key of ada");
  assert.equal(access.value.caller?.principal, "ada");
  assert.equal(isUnlocked(), false);
  assert.deepEqual(door.requests.map(({ path }) => path), [GET_CALLER, "/v1/login", GET_CALLER]);
  const holders = door.requests.filter((request) => JSON.stringify(request).includes("key of ada"));
  assert.deepEqual(holders, [{ path: "/v1/login", kind: "application/json", credential: "cookie", body: '{"key":"key of ada"}' }]);
  assert.equal(door.reloads, 0);
});

test("a wrong key is refused in the words of the server", async () => {
  await ask();
  await assert.rejects(login("no key"), { code: "unauthenticated", message: "no valid credential" });
  assert.deepEqual(access.value, { state: "out", problem: "" });
});

test("a caller may do what its permissions say", async () => {
  door.admit(MARA);
  await ask();
  assert.deepEqual((["read", "invoke", "define", "approve", "operate", "administer"] as const).filter(may), ["read"]);
});

test("a server that cannot say who calls is no reason to ask for a key", async () => {
  door.broken = true;
  await ask();
  assert.deepEqual(access.value, { state: "asking", problem: "the registry is away" });
  door.broken = false;
  door.admit(ADA);
  await ask();
  assert.equal(access.value.state, "in");
});

test("a caller without any permission reads why, and may use another key", async () => {
  door.admit({ principal: "guest" });
  await ask();
  assert.equal(access.value.state, "out");
  assert.match(access.value.problem, /read/);
});

test("several questions for the caller are one request", async () => {
  door.admit(ADA);
  await Promise.all([ask(), ask(), ask()]);
  assert.equal(door.requests.length, 1);
});

test("a refusal names the permission, and the permissions are read anew", async () => {
  door.admit(ADA);
  await ask();
  door.admit(MARA);
  const refused = call("run.v1.RunService/CancelRun", { runId: "call_1" });
  await assert.rejects(refused, { code: "permission_denied", message: "mara may not do this; the permission invoke is missing" });
  await ask();
  assert.equal(may("invoke"), false);
});

test("the wrong key of an approver does not end the caller", async () => {
  door.admit(ADA);
  await ask();
  const decision = call("registry.v1.ApprovalService/DecideApproval", {}, "wrong");
  await assert.rejects(decision, { code: "unauthenticated" });
  assert.equal(door.requests.at(-1)?.credential, "Bearer wrong");
  assert.equal(access.value.state, "in");
});

test("the end of a key ends the caller, whose permissions stay readable", async () => {
  door.admit(ADA);
  await ask();
  door.admit(undefined);
  await assert.rejects(call("run.v1.RunService/ListRuns", {}), { code: "unauthenticated" });
  assert.equal(access.value.state, "out");
  assert.match(access.value.problem, /^Your key has ended/);
  assert.ok(may("invoke"));
});

test("the first key of a server ends its callers in other words", async () => {
  door.admit({ principal: "local", open: true, permissions: ["read"] });
  await ask();
  door.admit(undefined);
  await assert.rejects(call("run.v1.RunService/ListRuns", {}));
  assert.match(access.value.problem, /^This server needs a key from now on/);
});

test("a run whose key ended continues after the login where it was cut, over another connection", async () => {
  door.admit(ADA);
  await ask();
  const { run } = follow("call_1");
  const first = await door.connection();
  first.answer({ message: { record: { event: { sequence: "7", runId: "call_1", text: { text: "Hel" } } } } });
  door.admit(undefined);
  first.answer({ end: { error: { code: "unauthenticated", message: "no valid credential" } } });
  await door.until(() => run.value.problem !== "");
  assert.equal(run.value.problem, "Your key has ended.");
  assert.equal(access.value.state, "out");
  assert.equal(run.value.timeline.items.length, 1);
  assert.equal(first.readyState, WebSocket.CLOSED);

  await login("key of ada");
  const second = await door.connection();
  assert.deepEqual(second.sent, [{ watchRun: { runId: "call_1", afterSequence: "7" } }]);
  second.answer({ message: { record: { event: { sequence: "8", runId: "call_1", text: { text: "lo" } } } } });
  second.answer({ message: { record: { terminal: { run: { runId: "call_1", state: "RUN_STATE_SUCCEEDED" } } } } });
  second.answer({ end: {} });
  second.close();
  await door.until(() => run.value.timeline.ended);
  assert.deepEqual([run.value.problem, run.value.timeline.items.length], ["", 1]);
  assert.equal(door.reloads, 0);
});

test("a connection that is refused is tried once, however many runs are followed over it", async () => {
  door.admit(ADA);
  await ask();
  const followed = ["call_1", "call_2", "call_3"].map((id) => follow(id));
  const first = await door.connection();
  door.admit(undefined);
  door.requests.length = 0;
  first.close();
  await door.until(() => followed.every(({ run }) => run.value.problem === "Your key has ended."));
  assert.deepEqual(door.requests.map(({ path }) => path), [GET_CALLER]);
  assert.equal(door.connections, 1);
  for (const { stop } of followed) stop();
});

test("another principal begins with a page of its own", async () => {
  door.admit(ADA);
  await ask();
  door.admit(undefined);
  await assert.rejects(call("run.v1.RunService/ListRuns", {}));
  await login("key of mara");
  assert.equal(door.reloads, 1);
});

test("a log-out ends the login and leaves nothing on the page", async () => {
  door.admit(ADA);
  await ask();
  await logout();
  assert.equal(door.requests.at(-1)?.path, "/v1/logout");
  assert.equal(door.reloads, 1);
  await ask();
  assert.equal(access.value.state, "out");
});
