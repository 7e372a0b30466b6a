import assert from "node:assert/strict";
import { test } from "node:test";

import type { RunEvent, WatchRecord } from "../src/api/types.ts";
import { collect, fields } from "../src/model/form.ts";
import { graph, states } from "../src/model/graph.ts";
import { arrange } from "../src/model/parts.ts";
import { face, readLines, readOutput } from "../src/model/results.ts";
import { EMPTY, isWork, record, type Item, type Timeline, type Work } from "../src/model/timeline.ts";
import { waitsFor } from "../src/model/waiting.ts";

/** Returns the timeline of a run whose events are `kinds`, numbered from 1. */
function play(...kinds: Partial<RunEvent>[]): Timeline {
  const events = kinds.map((kind, at) => ({ event: { sequence: String(at + 1), runId: "turn_1", ...kind } }));
  return events.reduce<Timeline>(record, EMPTY);
}

function work(item: Item | undefined): Work {
  assert.ok(item && isWork(item));
  return item;
}

const began = (effectId: string) => ({ callDispatched: { effectId, toolId: "T", argumentsJson: "{}" } });
const wrote = (effectId: string, text: string) => ({ outputChunk: { effectId, text } });

test("pieces of text become one paragraph", () => {
  const { items } = play({ text: { text: "Hel" } }, { text: { text: "lo" } }, { thinking: { text: "?" } });
  assert.deepEqual(items.map(({ kind }) => kind), ["text", "thinking"]);
  assert.equal(items[0]?.kind === "text" && items[0].text, "Hello");
});

test("output goes to the call that wrote it", () => {
  const { items } = play(began("a"), began("b"), wrote("a", "1"), wrote("b", "2"), wrote("a", "3"));
  assert.deepEqual(items.map((item) => work(item).output.map(({ text }) => text)), [["13"], ["2"]]);
});

test("a reset voids what the call wrote before", () => {
  const { items } = play(began("a"), wrote("a", "old"), { outputReset: { effectId: "a" } }, wrote("a", "new"));
  assert.deepEqual(work(items[0]).output, [{ text: "new", wrong: false }]);
});

test("an answer that was cut off gives way to the next one", () => {
  const { items } = play(began("a"), { text: { text: "Half" } }, { outputReset: {} }, { text: { text: "Whole" } });
  assert.deepEqual(items.map(({ kind }) => kind), ["call", "note", "text"]);
  assert.equal(items[2]?.kind === "text" && items[2].text, "Whole");
});

test("a call that settled has its state and result", () => {
  const result = { effectId: "a", toolId: "T", status: "CALL_STATUS_IN_DOUBT", outputJson: "1" };
  const { items } = play(began("a"), { callSettled: { result } });
  assert.equal(work(items[0]).state, "in doubt");
  assert.equal(work(items[0]).result, "1");
});

test("a streaming output grows, and a reset voids it", () => {
  const chunk = (text: string) => ({ outputChunk: { interfaceKey: "story", text } });
  const { items } = play(chunk("old"), { outputReset: { interfaceKey: "story" } }, chunk("ne"), chunk("w"));
  assert.deepEqual(items, [{ kind: "live", key: "1", name: "story", text: "new", lines: false }]);
});

test("a streaming output of values is known as such", () => {
  const chunk = (text: string) => ({ outputChunk: { interfaceKey: "tabs", text, jsonLines: true } });
  const { items } = play(chunk('{"n":1}\n'), chunk("2\n"));
  assert.deepEqual(items, [{ kind: "live", key: "1", name: "tabs", text: '{"n":1}\n2\n', lines: true }]);
});

test("the latest report of a script is its progress, and a reset voids it", () => {
  const report = (fraction: number, message: string) => ({ progressReported: { effectId: "a", fraction, message } });
  const { items } = play(began("a"), report(0, "reading"), report(0.5, "writing"));
  assert.deepEqual(work(items[0]).progress, { fraction: 0.5, message: "writing" });
  const { items: after } = play(began("a"), report(0.5, ""), { outputReset: { effectId: "a" } });
  assert.equal(work(after[0]).progress, undefined);
});

test("a message of a person stands where the model is asked with it", () => {
  const accepted = { steeringAccepted: { message: "Only the top shelf." } };
  const { items } = play(began("a"), accepted, { steered: { message: "Only the top shelf." } });
  assert.deepEqual(items.map(({ kind }) => kind), ["call", "note", "input"]);
});

const shown = (...data: object[]) => data.map((data, index) => ({ index, origin: "display", main: false, data, metadata: {} }));
const chunk = (...data: object[]) => {
  const text = shown(...data).map((result) => JSON.stringify(result)).join("\n");
  return { outputChunk: { effectId: "a", stream: "OUTPUT_STREAM_RESULTS", text } };
};

test("results come while a cell runs, and those of its output replace them", () => {
  const running = [began("a"), chunk({ "text/plain": "1" }), wrote("a", "x"), chunk({ "text/plain": "2" }, { "text/plain": "3" })];
  const { items } = play(...running);
  assert.deepEqual(work(items[0]).results?.map(({ data }) => data["text/plain"]), ["1", "2", "3"]);
  assert.equal(work(items[0]).output[0]?.text, "x");
  const files = [{ path: "a.csv", change: "created", bytes: 1 }];
  const outputJson = JSON.stringify({ stdout: "x", cell: 1, results: shown({ "text/plain": "1" }), files });
  const { items: after } = play(...running, { callSettled: { result: { effectId: "a", toolId: "T", outputJson } } });
  assert.deepEqual(work(after[0]).results?.map(({ data }) => data["text/plain"]), ["1"]);
  assert.deepEqual(work(after[0]).changes, files);
  assert.equal(work(after[0]).result, '{"stdout":"x","cell":1}');
  const { items: again } = play(...running, { outputReset: { effectId: "a" } });
  assert.equal(work(again[0]).results, undefined);
});

test("an output of another form is shown as it is", () => {
  for (const json of ["", "1", "[]", '{"results":1}', '{"results":[1]}', '{"files":["a"]}', '{"results":[{"data":1}]}']) {
    assert.deepEqual(readOutput(json), { rest: json });
  }
  assert.deepEqual(readOutput('{"results":[],"files":["a"]}'), { results: [], rest: '{"files":["a"]}' });
  assert.deepEqual(readLines('{"data":{}}\nnone\n[]\n'), [{ data: {} }]);
});

test("a result is shown by its first type that is shown in place", () => {
  const kept = { $blob: "sha256:0", bytes: 9, path: "results/0.png" };
  const faces: [Record<string, unknown>, object | undefined][] = [
    [{ "text/plain": "f", "image/png": kept }, { kind: "picture", mediaType: "image/png", path: "results/0.png", bytes: 9 }],
    [{ "text/plain": "t", "text/html": "<p>" }, { kind: "page", mediaType: "text/html", text: "<p>" }],
    [{ "text/html": "<p>", "image/svg+xml": kept }, { kind: "drawing", mediaType: "image/svg+xml", path: "results/0.png", bytes: 9 }],
    [{ "text/plain": "t", "text/markdown": "m" }, { kind: "text", mediaType: "text/markdown", text: "m" }],
    [{ "application/json": { a: 1 } }, { kind: "other", mediaType: "application/json", text: '{"a":1}' }],
    [{}, undefined],
  ];
  for (const [data, expected] of faces) assert.deepEqual(face({ index: 0, data }), expected);
  const metadata = { "image/png": { width: 640, height: 480 } };
  const { width, height } = face({ index: 0, data: { "image/png": kept }, metadata }) ?? {};
  assert.deepEqual([width, height], [640, 480]);
});

test("the conversation of a run below is known, for its files are others", () => {
  const started = { runId: "turn_2", parentPath: ["turn_1"], runStarted: { conversationId: "conv_2", inputJson: '"x"' } };
  const { items } = play(began("a"), started);
  assert.equal(work(items[0]).conversationId, "conv_2");
});

test("an approval waits until it was decided", () => {
  const asked = { approvalRequested: { approvalId: "apr_1", effectId: "a", toolId: "T" } };
  const decided = { approvalEnded: { approvalId: "apr_1", approved: true, approvers: ["mara"], reason: "fine" } };
  const { items } = play(began("a"), asked);
  assert.equal(items[1]?.kind === "approval" && items[1].ended, undefined);
  const { items: after } = play(began("a"), asked, decided);
  assert.equal(after[1]?.kind === "approval" && after[1].ended, "approved by mara: fine");
});

test("a call is in doubt until it was decided, and again after a repeat", () => {
  const doubt = (attempt: number) => ({ callInDoubt: { effectId: "a", toolId: "T", attempt } });
  const decided = (status?: string) => ({ callDecided: { effectId: "a", reason: "seen", ...(status && { status }) } });
  const settled = { callSettled: { result: { effectId: "a", toolId: "T", status: "CALL_STATUS_SUCCEEDED", outputJson: "7" } } };
  const succeeded = decided("CALL_STATUS_SUCCEEDED");
  for (const [events, state, words] of [
    [[doubt(1)], "in doubt", [undefined]],
    [[doubt(1), succeeded], "running", ["it took effect: seen"]],
    [[doubt(1), succeeded, settled], "succeeded", ["it took effect: seen"]],
    [[doubt(1), decided("CALL_STATUS_FAILED")], "running", ["it took no effect: seen"]],
    [[doubt(1), decided()], "running", ["it is called again: seen"]],
    [[doubt(1), decided(), doubt(2)], "in doubt", ["it is called again: seen", undefined]],
    [[doubt(1), decided(), doubt(2), succeeded], "running", ["it is called again: seen", "it took effect: seen"]],
  ] as const) {
    const { items } = play(began("a"), ...events);
    assert.equal(work(items[0]).state, state);
    assert.deepEqual(items.slice(1).map((item) => item.kind === "doubt" && item.decided), words);
  }
});

test("a run waits while people have to act and nothing else of it continues", () => {
  const below = { runId: "flow_2", parentPath: ["turn_1"] };
  const asked = (effectId: string) => ({ approvalRequested: { approvalId: "p", effectId, toolId: "T" } });
  const ended = (effectId: string) => ({ approvalEnded: { approvalId: "p", effectId, approved: true } });
  const node = (nodeId: string) => ({ nodeStarted: { nodeId, nodeType: "t" } });
  const waits = (nodeId: string, kind = "HUMAN_INPUT") => ({ nodeWaiting: { wait: { waitId: nodeId, nodeId, kind: `WAIT_KIND_${kind}` } } });
  const woken = (nodeId: string) => ({ nodeWoken: { waitId: nodeId, nodeId } });
  const dispatched = (effectId: string, nodeId: string) => ({ callDispatched: { effectId, toolId: "T", nodeId } });
  for (const [events, reason] of [
    [[began("a"), asked("a")], "approval"],
    [[began("a"), asked("a"), ended("a")], ""],
    [[began("a"), began("b"), asked("a")], ""],
    // The node that makes a call which was not dispatched seems to continue.
    [[node("n"), asked("a")], "approval"],
    [[node("n"), node("m"), asked("a")], ""],
    [[node("n"), dispatched("a", "n"), asked("a")], "approval"],
    [[node("n"), waits("n")], "question"],
    [[node("n"), waits("n", "SIGNAL")], "signal"],
    [[node("n"), waits("n"), woken("n")], ""],
    [[node("map"), node("map#0/n"), waits("map#0/n")], "question"],
    [[node("map"), node("map#0/n"), node("map#1/n"), waits("map#0/n")], ""],
    [[node("n"), waits("n"), node("m"), waits("m", "TIMER")], "question, time"],
    [[began("a"), { ...below, ...node("n") }, { ...below, ...waits("n") }], "question"],
    [[began("a"), { ...below, ...node("n") }, { ...below, ...waits("n") }, { ...below, ...node("m") }], ""],
  ] as const) {
    assert.equal(waitsFor(play(...events)), reason, JSON.stringify(events));
  }
});

test("a call that waits for an approval is not shown as running", () => {
  const { items } = play(began("a"), { approvalRequested: { approvalId: "p", effectId: "a", toolId: "T" } });
  assert.equal(work(items[0]).state, "waiting");
});

test("a conversation has its turns once each, and those that wait for their turn last", () => {
  const said = (runId?: string) => ({ text: "", ...(runId && { runId }) });
  const parts = arrange([said(), said("a"), said("a"), said(), said("b")], { activeRunId: "b", queuedRunIds: ["c"] });
  assert.deepEqual(parts.map((part) => ("number" in part ? `${part.number} ${part.runId}` : part.key)), [
    "message0",
    "1 a",
    "message3",
    "2 b",
    "3 c",
  ]);
});

test("a run waits while a call of it or of a run below is in doubt", () => {
  const below = { runId: "flow_2", parentPath: ["turn_1"] };
  const doubt = { callInDoubt: { effectId: "b", toolId: "T", attempt: 1 } };
  const decided = { callDecided: { effectId: "b", status: "CALL_STATUS_FAILED" } };
  const settled = (effectId: string) => ({ callSettled: { result: { effectId, status: "CALL_STATUS_IN_DOUBT" } } });
  for (const [events, reason] of [
    [[began("b"), doubt], "in doubt"],
    [[began("b"), doubt, decided], ""],
    [[began("b"), doubt, settled("b")], ""],
    [[began("a"), { ...below, ...doubt }], "in doubt"],
    [[began("a"), { ...below, ...doubt }, { ...below, ...decided }], ""],
    [[began("a"), { ...below, ...doubt }, settled("a")], ""],
    [[began("b"), doubt, { runPaused: {} }], ""],
    [[began("b"), doubt, { runFinished: { outcome: { state: "RUN_STATE_IN_DOUBT" } } }], ""],
  ] as const) {
    assert.equal(waitsFor(play(...events)), reason, JSON.stringify(events));
  }
});

test("a call whose output is too long for its event shows the beginning and the handle", () => {
  const longOutput = { head: "[1,2", totalBytes: "2000000" };
  const result = { effectId: "a", toolId: "T", status: "CALL_STATUS_SUCCEEDED", longOutput };
  const { items } = play(began("a"), { callSettled: { result } });
  assert.equal(work(items[0]).result, "[1,2 … (2000000 bytes, handle a)");
});

test("the events of a run below are inside the call that started it", () => {
  const inner = { runId: "flow_2", parentPath: ["turn_1"] };
  const { items } = play(
    began("a"),
    { ...inner, nodeStarted: { nodeId: "n", nodeType: "text" } },
    { ...inner, nodeFinished: { nodeId: "n", nodeType: "text", state: "NODE_STATE_SUCCEEDED" } },
    { ...inner, runId: "call_3", parentPath: ["turn_1", "flow_2"], text: { text: "deep" } },
  );
  assert.equal(items.length, 1);
  const [node, deep] = work(items[0]).items;
  assert.equal(work(node).state, "succeeded");
  assert.equal(work(deep).items[0]?.kind, "text");
});

test("a hook that was applied is a note with its places or its reason", () => {
  const applied = (action: string, more = {}) => ({ hookApplied: { hook: "p/mask", point: "tool:after-call", action, ...more } });
  const { items } = play(
    applied("HOOK_ACTION_REPLACE", { pointers: ["/result/output"] }),
    applied("HOOK_ACTION_FAIL", { code: "hook_timeout", reason: "did not answer in time" }),
  );
  assert.deepEqual(items.map((item) => item.kind === "note" && [item.text, item.wrong]), [
    ["hook p/mask at tool:after-call replaced /result/output", false],
    ["hook p/mask at tool:after-call failed, which refuses the act: did not answer in time", true],
  ]);
});

test("a wait is shown until something wakes it", () => {
  const wait = { waitId: "w", nodeId: "ask", kind: "WAIT_KIND_HUMAN_INPUT", name: "May I?" };
  const woken = { nodeWoken: { waitId: "w", cause: "WAKE_CAUSE_ANSWER", payloadJson: '"yes"', answeredBy: "Ann" } };
  const { items } = play({ nodeWaiting: { wait } }, woken);
  const [item] = items;
  assert.ok(item?.kind === "wait");
  assert.equal(item.woken, 'Ann: "yes"');
});

test("a record that was seen changes nothing", () => {
  const before = play({ text: { text: "a" } }, { text: { text: "b" } });
  const again: WatchRecord = { event: { sequence: "2", runId: "turn_1", text: { text: "b" } } };
  assert.equal(record(before, again), before);
});

test("the terminal record ends the timeline in the state of its run", () => {
  const ended = record(play({}), { terminal: { run: { runId: "turn_1", state: "RUN_STATE_CANCELLED" } } });
  assert.equal(ended.ended, true);
  assert.equal(ended.state, "cancelled");
});

test("a form has a field for each parameter and types what was written", () => {
  const schema = { properties: { n: { type: "integer" }, s: { type: "string" } }, required: ["n"] };
  const form = fields(JSON.stringify(schema));
  assert.deepEqual(form.map(({ control, required }) => [control, required]), [["number", true], ["text", false]]);
  assert.deepEqual(collect(form, { n: "3", s: "" }), { n: 3 });
  assert.throws(() => collect(form, { n: "three" }), /n is not a valid number/);
});

test("a graph places nodes by their containers and joins only what is there", () => {
  const nodes = [
    { id: "inside", parentNode: "zone", position: { x: 10, y: 20 } },
    { id: "zone", position: { x: 100, y: 0 }, width: 300, height: 200 },
    { id: "left", displayName: "Left", position: { x: -40, y: 0 } },
  ];
  const edges = [
    { source: "left", target: "inside" },
    { source: "left", target: "gone" },
  ];
  const { boxes, lines, width } = graph(JSON.stringify({ nodes, edges }));
  assert.deepEqual(boxes.map(({ id }) => id), ["zone", "inside", "left"]);
  const [zone, inside, left] = boxes;
  assert.equal(inside && zone && inside.x - zone.x, 10);
  assert.deepEqual([left?.label, left?.x, zone?.around], ["Left", 16, true]);
  assert.deepEqual([lines.length, width], [1, 472]);
});

test("the nodes of a run have the states of their last execution", () => {
  const { items } = play(
    { nodeStarted: { nodeId: "a", nodeType: "core:TextMerge" } },
    { nodeFinished: { nodeId: "a", nodeType: "core:TextMerge", state: "NODE_STATE_FAILED" } },
    { nodeStarted: { nodeId: "b", nodeType: "core:TextMerge" } },
  );
  const drawn = graph(JSON.stringify({ nodes: [{ id: "a" }, { id: "b" }] }));
  assert.deepEqual([...states(drawn, items)], [["a", "failed"], ["b", "running"]]);
});

test("what happens inside zones and groups lights up the node that is drawn", () => {
  const started = (nodeId: string) => ({ nodeStarted: { nodeId, nodeType: "t" } });
  const paths = ["loop#0/ask/prompt", "map#2/loop#1/act", "llm/round#0/limit", "group/part", "plain"];
  const { items } = play(...paths.map(started));
  const ids = ["loop", "ask", "map", "act", "llm", "limit", "group", "plain"];
  const drawn = graph(JSON.stringify({ nodes: ids.map((id) => ({ id })) }));
  assert.deepEqual([...states(drawn, items).keys()], ["ask", "act", "llm", "group", "plain"]);
});

test("an agent of a scene sleeps until something wakes it", () => {
  const { items } = play(
    { instanceSlept: { instanceId: "elara", wakeTime: "2026-11-24T20:00:00Z", wakeOn: ["npc.*"] } },
    { instanceWoke: { instanceId: "elara", cause: "CAUSE_TIMER" } },
    { instanceSlept: { instanceId: "elara" } },
    { instanceWoke: { instanceId: "elara", cause: "CAUSE_CALLER" } },
  );
  assert.deepEqual(items.map((item) => item.kind === "note" && item.text), [
    "elara sleeps until 2026-11-24T20:00:00Z or npc.*",
    "elara is awake: its time came",
    "elara sleeps",
    "elara is awake",
  ]);
});
