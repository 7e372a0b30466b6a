// Plays the page in a headless Chromium against the server at the address that is given, and leaves
// screenshots in the directory that is given.
import assert from "node:assert/strict";

import { LOOKED_AGAIN, lookEverywhere, onPage, SIZES, withBrowser } from "./harness.mjs";

/** A script that writes a line, waits, and writes another. */
const SLOW = `<ACTION><CodeInterpreter:execute><language>python</language><code>
import time
print('first', flush=True)
time.sleep(SECONDS)
print('second', flush=True)
</code></CodeInterpreter:execute></ACTION>`;

await withBrowser((browser, address, pictures) =>
  onPage(browser, { address, pictures }, (page, complaints) => play({ page, complaints, address, pictures })),
);

async function play({ page, complaints, address, pictures }) {
  const output = () => page.getByLabel("Output").first();
  const status = () => page.getByRole("status");
  const send = async (to, text) => {
    await page.keyboard.press("Alt+1");
    await page.getByRole("combobox", { name: /^To/ }).selectOption({ label: to });
    await page.getByRole("textbox", { name: /^(Message|Model text)$/ }).fill(text);
    await page.getByRole("button", { name: "Send" }).click();
  };
  const picture = (name) => lookEverywhere(page, pictures, name);

  // The page's time is that of the clock until the play makes it pass.
  await page.clock.install();
  await page.goto(`${address}/console`);
  await page.getByRole("option", { name: "Weather Guide" }).waitFor({ state: "attached" });
  await picture("start");

  // An agent answers, and its calls have results.
  await send("Weather Guide", "What is the weather like, and who is player123?");
  await page.getByRole("article", { name: "Turn 1" }).locator(".runhead").getByText("succeeded").waitFor();
  await page.getByText("GetPlayerInfo", { exact: true }).first().waitFor();
  await picture("agent");

  // Chunks arrive one after the other; a reload between them continues to the end.
  await send("Model text", SLOW.replace("SECONDS", "3"));
  await output().getByText("first").waitFor();
  assert.equal((await output().textContent()).includes("second"), false, "the second line came with the first");
  const { hash } = new URL(page.url());
  assert.match(hash, /^#\/run\/call_/);
  await page.reload();
  await output().getByText("first").waitFor();
  await output().getByText("second").waitFor();
  await status().getByText("succeeded").waitFor();
  assert.equal(new URL(page.url()).hash, hash);

  // A run that would take long is cancelled.
  await send("Model text", SLOW.replace("SECONDS", "600"));
  await output().getByText("first").waitFor();
  await picture("running");
  await page.getByRole("button", { name: "Cancel" }).click();
  await status().getByText("cancelled").waitFor();
  await picture("cancelled");

  // A person changes the arguments of a call that waits, and approves it.
  const gift = "<item>ring</item><to>player</to><value>80</value>";
  await send("Model text", `<ACTION><workflow:grant_item>${gift}</workflow:grant_item></ACTION>`);
  const decision = page.getByRole("form", { name: "Decide" });
  await decision.getByLabel("Arguments").fill('{"item": "ring", "to": "player", "value": 40}');
  await decision.getByLabel(/^Your key/).fill("wrong");
  await decision.getByRole("button", { name: "Approve" }).click();
  await page.getByRole("alert").getByText("No approver has this key.").waitFor();
  await picture("approval");
  await decision.getByLabel(/^Your key/).fill(process.env.TAVERN_APPROVER_KEY);
  await decision.getByRole("button", { name: "Approve" }).click();
  await status().getByText("succeeded").waitFor();
  await page.getByText("player now has the ring, worth 40.").first().waitFor();
  // The browser reports the refusal of the wrong key by itself.
  assert.match(complaints.pop() ?? "", /401/);

  // Text that looks like HTML is text.
  await send("Model text", "<img src=x onerror=alert(1)><b>bold</b>");
  await page.getByText("<b>bold</b>").first().waitFor();
  assert.equal(await page.locator(".view img, .view b").count(), 0);

  // Alt with a digit changes the view, also where the keyboard writes another character with Alt.
  for (const [at, view] of ["chat", "runs", "tools", "workflows", "inbox", "plugins"].entries()) {
    await page.keyboard.press(`Alt+${at + 1}`);
    await page.locator(`main.${view}`).waitFor();
  }
  const keys = { altKey: true, code: "Digit2", key: "™", bubbles: true };
  await page.evaluate((keys) => void document.body.dispatchEvent(new KeyboardEvent("keydown", keys)), keys);
  await page.locator("main.runs").waitFor();

  // The runs are listed and filtered by the keyboard, and one is opened.
  await page.getByRole("combobox", { name: /^State/ }).selectOption("cancelled");
  const cancelled = page.locator(".list a", { hasText: "cancelled" });
  await cancelled.first().waitFor();
  // The unfiltered list stands until the filtered one has come.
  await page.waitForFunction(() => document.querySelectorAll(".list a").length === 1);
  await picture("runs");
  await cancelled.first().focus();
  await page.keyboard.press("Enter");
  await status().getByText("cancelled").waitFor();

  // A tool is found, its form filled in, and tried.
  await page.keyboard.press("Alt+3");
  await page.getByRole("link", { name: /^GetPlayerInfo/ }).waitFor();
  await picture("tools");
  await page.getByLabel("Find").fill("GetPlayerInfo");
  await page.getByRole("link", { name: /^GetPlayerInfo/ }).click();
  const form = page.getByRole("form", { name: "Try GetPlayerInfo" });
  await form.getByLabel(/player_id/).fill("player123");
  await picture("tool");
  await form.getByRole("button", { name: "Try" }).click();
  await page.getByLabel("Result").waitFor();
  await picture("tried");

  // A workflow lights up as it runs, and an agent may use it from then on.
  await page.keyboard.press("Alt+4");
  await page.getByRole("link", { name: /^nested_loops/ }).click();
  const run = page.getByRole("form", { name: "Run nested_loops" });
  await run.getByLabel(/^rows/).fill("3");
  await run.getByLabel(/^columns/).fill("4");
  await run.getByRole("button", { name: "Run" }).click();
  await status().getByText("succeeded").waitFor();
  await page.locator(".graph .box.around.succeeded").first().waitFor();
  const offer = page.getByRole("form", { name: "Offer workflow:nested_loops to an agent" });
  await offer.getByRole("combobox").selectOption({ label: "Weather Guide" });
  await offer.getByRole("button").click();
  await offer.getByText("Weather Guide may use workflow:nested_loops.").waitFor();
  await page.locator(".graph").scrollIntoViewIfNeeded();
  await picture("workflow");
  await zoom(page);
  await page.getByRole("link", { name: "Open the run" }).click();
  await page.getByLabel("Timeline").getByText("rows", { exact: true }).waitFor();

  // A workflow asks a person, who answers on the page.
  const asking = {
    nodes: [
      { id: "ask", type: "core:HumanInput", inputValues: { context: { text: "A draft." } },
        configValues: { title: "Publish this?", choices: [{ value: "yes", label: "Publish" }, "no"] } },
      { id: "out", type: "core:GroupOutput" },
    ],
    edges: [{ source: "ask", sourceHandle: "choice", target: "out", targetHandle: "choice" }],
    interfaceOutputs: { choice: { dataFlowType: "STRING" } },
  };
  const ask = async (method, request) => {
    const headers = { "content-type": "application/json" };
    const answer = await fetch(`${address}/tavern.${method}`, { method: "POST", headers, body: JSON.stringify(request) });
    assert.ok(answer.ok, `${method}: ${answer.status}`);
    return answer.json();
  };
  const askPerson = async () => {
    const started = await ask("workflow.v1.WorkflowService/StartRun", { definitionJson: JSON.stringify(asking) });
    return started.run.runId;
  };
  const runId = await askPerson();
  await page.goto(`${address}/console#/run/${runId}`);
  await page.getByText("Publish this?").waitFor();
  await picture("waiting");
  await page.getByRole("button", { name: "Publish" }).click();
  await status().getByText("succeeded").waitFor();
  await page.getByText('waited: console: "yes"').waitFor();

  // More runs that wait are opened one after the other than may be followed at once.
  for (let run = 0; run < 18; run += 1) {
    const runId = await askPerson();
    await page.evaluate((hash) => void (location.hash = hash), `#/run/${runId}`);
    await page.locator(".runhead").getByText(runId).waitFor();
    await page.locator(".runhead").getByText("waiting (question)").waitFor();
    await page.getByText("Publish this?").waitFor();
  }

  // The newest messages of a long conversation are shown first; those before them on demand.
  const messages = Array.from({ length: 20 }, (_, at) => ({ role: at % 2 ? "CHAT_ROLE_ASSISTANT" : "CHAT_ROLE_USER", text: `message ${at + 1}` }));
  messages[19].calls = [{ id: "1", name: "GetPlayerInfo", argumentsJson: '{"player_id":"player7"}' }];
  messages.push({ role: "CHAT_ROLE_TOOL", text: "No such player.", resultOf: { id: "1" } });
  await ask("agent.v1.ConversationService/AppendMessages", { conversationId: "a-long-one", messages });
  await page.goto(`${address}/console#/chat/${encodeURIComponent("a-long-one")}`);
  await page.locator(".turn").getByText("message 20", { exact: true }).waitFor();
  await page.locator(".turn").getByText('{"player_id":"player7"}').waitFor();
  assert.equal(await page.locator(".turn").count(), 8);
  await page.getByRole("button", { name: "Earlier (13)" }).click();
  await page.getByRole("button", { name: "Earlier (5)" }).click();
  await page.locator(".turn").getByText("message 1", { exact: true }).waitFor();
  assert.equal(await page.locator(".turn").count(), 21);

  // A turn's conversation is opened from its run.
  await page.keyboard.press("Alt+2");
  await page.getByRole("combobox", { name: /^State/ }).selectOption("any");
  await page.locator(".list a", { hasText: "weather_guide" }).first().click();
  await page.getByRole("link", { name: "Open the conversation" }).click();
  await page.getByRole("article", { name: "Turn 1" }).getByText("succeeded").first().waitFor();

  // Calls in doubt are listed beside the questions, and each is gone once a person decided.
  await page.keyboard.press("Alt+5");
  const inDoubt = page.getByRole("region", { name: "Calls in doubt" });
  const doubtful = (effectId) => inDoubt.getByRole("article").filter({ hasText: effectId });
  await doubtful("gift-1").getByText("ledger.append", { exact: true }).waitFor();
  await doubtful("gift-1").getByText('"note":"gift-1"').waitFor();
  await doubtful("gift-2").getByText(/: .+/).first().waitFor();
  await doubtful("gift-2").getByRole("button", { name: "Did not" }).waitFor();
  assert.match(await doubtful("gift-3").getByRole("link").getAttribute("href"), /^#\/run\/call_/);
  await picture("in-doubt");
  await doubtful("gift-1").getByLabel(/^Output/).fill("appended");
  await doubtful("gift-1").getByRole("button", { name: "Took effect" }).click();
  await doubtful("gift-1").getByRole("alert").getByText("JSON").waitFor();
  assert.match(complaints.pop() ?? "", /400/);
  await doubtful("gift-1").getByLabel(/^Output/).fill('{"appended": true}');
  await doubtful("gift-1").getByLabel(/^Reason/).fill("seen in the ledger");
  await doubtful("gift-1").getByRole("button", { name: "Took effect" }).click();
  await doubtful("gift-1").waitFor({ state: "detached" });
  // A call that is decided elsewhere is gone as well.
  await ask("registry.v1.CallService/ResolveCall", { effectId: "gift-2", decision: "CALL_DECISION_DID_NOT" });
  await page.clock.runFor(LOOKED_AGAIN);
  await doubtful("gift-2").waitFor({ state: "detached" });
  await doubtful("gift-3").getByRole("button", { name: "Did not" }).click();
  await doubtful("gift-3").waitFor({ state: "detached" });
  await inDoubt.getByText("No call is in doubt.").waitFor();
}

/** A graph fits its pane at first, and again after it was drawn larger. */
async function zoom(page) {
  const drawn = () => page.locator(".pane").evaluate((pane) => {
    const { right, bottom, left, top } = pane.getBoundingClientRect();
    const boxes = [...pane.querySelectorAll(".box rect")].map((box) => box.getBoundingClientRect());
    const fits = boxes.every((box) => box.left >= left && box.top >= top && box.right <= right && box.bottom <= bottom);
    const scrolls = pane.scrollWidth > pane.clientWidth || pane.scrollHeight > pane.clientHeight;
    return { fits, scrolls, width: Math.max(...boxes.map(({ width }) => width)) };
  });
  for (const size of SIZES) {
    await page.setViewportSize(size);
    const first = await drawn();
    assert.deepEqual([first.fits, first.scrolls], [true, false], `the graph fits at ${size.width} px`);
    for (let step = 0; step < 3; step += 1) await page.getByRole("button", { name: "Zoom in" }).click();
    const large = await drawn();
    assert.ok(large.scrolls && large.width > 3 * first.width, `${large.width} of ${first.width} px`);
    await page.getByRole("button", { name: "Zoom out" }).click();
    assert.ok((await drawn()).width < large.width);
    await page.getByRole("button", { name: "Fit" }).click();
    assert.deepEqual(await drawn(), first);
  }
}
