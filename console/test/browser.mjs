// Plays the page in a headless Chromium against the server at the address that is given, and leaves
// screenshots in the directory that is given.
import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";

import { chromium } from "playwright-core";

const [address, pictures] = process.argv.slice(2);
await mkdir(pictures, { recursive: true });
const browser = await chromium.launch({
  executablePath: process.env.TAVERN_TEST_CHROMIUM ?? "/usr/bin/chromium",
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
  ],
});
const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, ignoreHTTPSErrors: true });
page.setDefaultTimeout(20_000);
const complaints = [];
page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
page.on("pageerror", (error) => complaints.push(String(error)));
page.on("request", (request) => {
  const { host } = new URL(request.url());
  if (host !== new URL(address).host) complaints.push(`a request to ${host}`);
});

/** A script that writes a line, waits, and writes another. */
const SLOW = `<ACTION><CodeInterpreter:execute><language>python</language><code>
import time
print('first', flush=True)
time.sleep(SECONDS)
print('second', flush=True)
</code></CodeInterpreter:execute></ACTION>`;

const output = () => page.getByLabel("Output").first();
const status = () => page.getByRole("status");

async function send(to, text) {
  await page.getByRole("combobox", { name: /^To/ }).selectOption({ label: to });
  await page.getByRole("textbox", { name: /^(Message|Model text)$/ }).fill(text);
  await page.getByRole("button", { name: "Send" }).click();
}

/** Takes pictures at both widths, light and dark, and finds text that is cut off or overlaps. */
async function picture(name) {
  for (const [width, height] of [[390, 844], [1280, 800]]) {
    await page.setViewportSize({ width, height });
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      await page.screenshot({ path: join(pictures, `${name}-${width}-${colorScheme}.png`) });
    }
    assert.deepEqual(await page.evaluate(flaws), [], `${name} at ${width} px`);
  }
  await page.emulateMedia({ colorScheme: "light" });
}

/** Runs in the page. */
function flaws() {
  const found = [];
  const wide = (element) => element.scrollWidth > element.clientWidth + 1;
  if (wide(document.documentElement)) found.push("the page scrolls sideways");
  const leaves = [...document.querySelectorAll("a, button, label, code, p, summary, h1, h2, pre, time, select")];
  const visible = leaves.filter((leaf) => leaf.checkVisibility() && leaf.getClientRects().length > 0);
  for (const leaf of visible) {
    const box = leaf.getBoundingClientRect();
    const text = leaf.textContent.slice(0, 40);
    if (box.right > innerWidth + 1 || box.left < -1) found.push(`beyond the edge: ${text}`);
    if (leaf.clientWidth > 0 && leaf.tagName !== "SELECT" && wide(leaf)) found.push(`cut off: ${text}`);
  }
  const controls = visible.filter((leaf) => leaf.matches(".bar a, .bar h1, .composer label, button, .runhead > *"));
  for (const [at, one] of controls.entries()) {
    for (const other of controls.slice(at + 1)) {
      if (one.contains(other) || other.contains(one)) continue;
      const [a, b] = [one.getBoundingClientRect(), other.getBoundingClientRect()];
      const apart = a.right <= b.left + 1 || b.right <= a.left + 1 || a.bottom <= b.top + 1 || b.bottom <= a.top + 1;
      if (!apart) found.push(`overlap: ${one.textContent.slice(0, 30)} and ${other.textContent.slice(0, 30)}`);
    }
  }
  return found;
}

try {
  await page.goto(`${address}/console`);
  await page.getByRole("option", { name: "Weather Guide" }).waitFor({ state: "attached" });
  await picture("start");

  // An agent answers, and its calls have results.
  await send("Weather Guide", "What is the weather like, and who is player123?");
  await status().getByText("succeeded").waitFor();
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
  await page.getByRole("alert").getByText("send the key of an approver").waitFor();
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

  // The runs are listed and filtered by the keyboard, and one is opened.
  await page.keyboard.press("Alt+2");
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
  const offer = page.getByRole("form", { name: "Offer nested_loops to an agent" });
  await offer.getByRole("combobox").selectOption({ label: "Weather Guide" });
  await offer.getByRole("button").click();
  await offer.getByText("Weather Guide may use workflow:nested_loops.").waitFor();
  await page.locator(".graph").scrollIntoViewIfNeeded();
  await picture("workflow");
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
  const started = await fetch(`${address}/tavern.workflow.v1.WorkflowService/StartRun`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ definitionJson: JSON.stringify(asking) }),
  });
  const { runId } = (await started.json()).run;
  await page.goto(`${address}/console#/run/${runId}`);
  await page.getByText("Publish this?").waitFor();
  await picture("waiting");
  await page.getByRole("button", { name: "Publish" }).click();
  await status().getByText("succeeded").waitFor();
  await page.getByText('waited: console: "yes"').waitFor();

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
  for (const effect of ["gift-2", "gift-3"]) {
    await doubtful(effect).getByRole("button", { name: "Did not" }).click();
    await doubtful(effect).waitFor({ state: "detached" });
  }
  await inDoubt.getByText("No call is in doubt.").waitFor();

  assert.deepEqual(complaints, []);
} catch (error) {
  await page.screenshot({ path: join(pictures, "failure.png") }).catch(() => {});
  throw error;
} finally {
  await browser.close();
}
