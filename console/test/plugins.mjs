// Plays a plugin on the page, in each look: from an archive that is dropped to the first call of its tool, its
// switches, an earlier package, a plugin of the plugin directory, and the removal.
import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { archive } from "./archive.mjs";
import { look, LOOKS, onPage, withBrowser } from "./harness.mjs";

/** The plugin directory of the server. */
const DIRECTORY = process.argv[4];

const MANIFEST = `name: dice
displayName: Dice
version: 1.0.0
description: Rolls dice with as many sides as are set.
tools: {entry: tools}
configOptions:
  - {key: extensions.dice.sides, type: integer, displayName: Sides, minimum: 2, maximum: 100, required: true}
  - {key: extensions.dice.greeting, type: string, displayName: Greeting, description: Said before each roll., default: Hi, maxLength: 20}
  - {key: extensions.dice.rules, type: text, displayName: House rules}
  - {key: extensions.dice.bias, type: number, displayName: Bias, minimum: 0, maximum: 1, default: 0.5}
  - {key: extensions.dice.loud, type: boolean, displayName: Loud, default: false}
  - {key: extensions.dice.material, type: enum, displayName: Material, options: [bone, wood], default: bone}
  - {key: extensions.dice.players, type: string_list, displayName: Players, maxItems: 3}
  - {key: extensions.dice.odds, type: json, displayName: Odds}
permissions:
  resources: {wall_seconds: 20}
`;
const TOOL = {
  id: "dice:roll",
  description: "Rolls a die with as many sides as are set.",
  readOnly: true,
  parameters: { type: "object" },
  implementation: { type: "script", command: "python3 roll.py" },
};
const SCRIPT = `import json, os
options = json.load(open(os.environ["TAVERN_OPTIONS"]))
print(json.dumps({"sides": options["sides"], "players": options.get("players")}))
`;

function dice(version, changes = {}) {
  const files = { "plugin.yaml": MANIFEST.replace("1.0.0", version), "tools/roll.tool.json": JSON.stringify(TOOL), "roll.py": SCRIPT };
  return archive({ ...files, ...changes });
}

await withBrowser(async (browser, address, pictures) => {
  for (const [at, { size: viewport, colorScheme }] of LOOKS.entries()) {
    await onPage(browser, { address, pictures, viewport, colorScheme }, async (page, complaints) => {
      const picture = (view) => {
        const name = `plugins-${view}-${viewport.width}-${colorScheme}`;
        return look(page, join(pictures, `${name}.png`), name);
      };
      const play = { page, picture, complaints, address };
      await page.goto(`${address}/console`);
      await page.getByRole("link", { name: "Plugins" }).waitFor();
      await page.keyboard.press("Alt+6");
      await page.getByRole("link", { name: /^first-aid/ }).waitFor();
      await picture("list");
      await refuse(play);
      await install(play);
      await configure(play);
      await offer(play);
      await switchOff(play);
      await rollBack(play);
      await approveDirectory(play, 21 + at);
      await remove(play);
    });
  }
});

/** Drops an archive on the view. */
async function drop(page, name, content) {
  const dataTransfer = await page.evaluateHandle(
    ([name, content]) => {
      const dropped = new DataTransfer();
      dropped.items.add(new File([Uint8Array.from(atob(content), (character) => character.charCodeAt(0))], name));
      return dropped;
    },
    [name, content.toString("base64")],
  );
  for (const type of ["dragover", "drop"]) await page.locator(".plugins .scroll").dispatchEvent(type, { dataTransfer });
}

/** Returns the plan of a package. */
function planOf(page, name) {
  return page.getByRole("region", { name: `Plan of ${name}` });
}

/** Returns the button that approves a plan. */
function approve(page, name) {
  return planOf(page, name).getByRole("button", { name: "Approve and install" });
}

/** Returns everything about a plugin. */
function detail(page, name = "dice") {
  return page.getByRole("region", { name: `Plugin ${name}` });
}

/** Returns a state of the plugin. */
function state(page, word) {
  return detail(page).locator(".runhead").getByText(word, { exact: true });
}

/** A file that is no package is refused by its plan; so is a package, with every violation. */
async function refuse({ page, picture }) {
  await drop(page, "notes.zip", Buffer.from("not an archive"));
  await planOf(page, "notes.zip").getByText("This package cannot be installed.").waitFor();
  const asks = "  network: [{host: example.com, reason: Asks for luck.}]\n  tools: {call: [\"system:get_current_time\"]}\n";
  await drop(page, "broken.zip", dice("1.0.0", { "plugin.yaml": MANIFEST + asks }));
  const refused = planOf(page, "broken.zip");
  await refused.getByText("This package cannot be installed.").waitFor();
  const reasons = refused.getByRole("list", { name: "Reasons" }).getByRole("listitem");
  for (const reason of [/network/, /tools.call/]) await reasons.filter({ hasText: reason }).first().waitFor();
  assert.equal(await approve(page, "broken.zip").count(), 0);
  await picture("refused");
  await refused.getByRole("button", { name: "Close" }).click();
}

/** A package is planned, and installed once its plan was read. */
async function install({ page, picture }) {
  await page.getByLabel("Add a plugin").setInputFiles([{ name: "dice.zip", mimeType: "application/zip", buffer: dice("1.0.0") }]);
  const text = await planOf(page, "dice.zip").getByLabel("Plan").textContent();
  for (const part of ["dice:roll", "wall_seconds 20", "extensions.dice.sides"]) assert.ok(text.includes(part), `${part}: ${text}`);
  await picture("plan");
  await approve(page, "dice.zip").click();
  await state(page, "needs options").waitFor();
  assert.equal(new URL(page.url()).hash, "#/plugins/dice");
  await picture("installed");
}

/** Tries the tool as its form does. Returns the run's view. */
async function roll(page) {
  await page.goto(`${new URL(page.url()).origin}/console#/plugins/dice`);
  await detail(page).getByRole("link", { name: "Open dice:roll" }).click();
  await page.getByRole("form", { name: "Try dice:roll" }).getByRole("button", { name: "Try" }).click();
  await page.waitForURL(/#\/run\/call_/);
  return page.getByRole("log");
}

/** The first call waits for an option; values that are wrong are all named at once; then the call has a result. */
async function configure({ page, picture, complaints }) {
  await (await roll(page)).getByText(/plugin_not_configured|needs? .*sides/).first().waitFor();
  await page.goBack();
  await page.goBack();
  const form = page.getByRole("form", { name: "Options of dice" });
  await form.getByLabel("Sides").fill("1");
  await form.getByLabel("Bias").fill("high");
  await form.getByLabel("Odds").fill("{");
  await form.getByLabel("Players").fill("Ada\nMara");
  await form.getByRole("button", { name: "Save" }).click();
  await form.getByText(/from 2 to 100/).waitFor();
  await form.getByText(/'high' is not a number/).waitFor();
  await form.getByText(/is not JSON/).waitFor();
  assert.equal(await form.locator("[aria-invalid=true]").count(), 3);
  await form.scrollIntoViewIfNeeded();
  await picture("violations");
  assert.match(complaints.splice(0).join(), /400/);

  await form.getByLabel("Sides").fill("20");
  await form.getByLabel("Bias").fill("0.25");
  await form.getByLabel("Odds").fill('{"six": 2}');
  await form.getByLabel("Loud").selectOption("true");
  await form.getByLabel("Material").selectOption("wood");
  await form.getByRole("button", { name: "Save" }).focus();
  await page.keyboard.press("Enter");
  await form.getByText("Saved.").waitFor();
  await state(page, "loaded").waitFor();
  await form.getByRole("button", { name: "Restore the default: Bias" }).click();
  await form.getByRole("button", { name: "Save" }).click();
  await form.getByText("Saved.").waitFor();
  assert.equal(await form.getByRole("textbox", { name: "Bias" }).inputValue(), "0.5");
  await form.scrollIntoViewIfNeeded();
  await picture("options");

  const log = await roll(page);
  await log.getByText(/"sides":\s*20/).first().waitFor();
  await log.getByText("Mara").first().waitFor();
}

/** An agent may use the tool from then on, as every other one. */
async function offer({ page, picture }) {
  await page.goBack();
  const offered = page.getByRole("form", { name: "Offer dice:roll to an agent" });
  await offered.getByRole("combobox").selectOption({ label: "giver" });
  await offered.getByRole("button").click();
  await offered.getByText("giver may use dice:roll.").waitFor();
  await picture("offered");
}

/** The switches of the tool and of the plugin hold for calls. */
async function switchOff({ page, picture }) {
  await page.goto(`${new URL(page.url()).origin}/console#/plugins/dice`);
  const tool = detail(page).getByRole("switch", { name: "dice:roll" });
  const isSet = page.waitForResponse(/SetToolState$/);
  await tool.focus();
  await page.keyboard.press("Space");
  await isSet;
  await (await roll(page)).getByText(/tool_not_available|switched off/).first().waitFor();
  await page.goBack();
  await page.goBack();
  await tool.check();
  await detail(page).getByRole("switch", { name: "Switched on" }).uncheck();
  await state(page, "switched off").waitFor();
  await picture("switched-off");
  await detail(page).getByRole("switch", { name: "Switched on" }).check();
  await state(page, "loaded").waitFor();
}

/** A later package takes the place of the first one, which is installed again. */
async function rollBack({ page, picture }) {
  await drop(page, "dice-2.zip", dice("2.0.0"));
  await approve(page, "dice-2.zip").click();
  await detail(page).getByText("2.0.0", { exact: true }).waitFor();
  const earlier = detail(page).getByRole("list", { name: "Earlier packages" });
  await earlier.scrollIntoViewIfNeeded();
  await picture("earlier");
  await earlier.getByRole("button").first().click();
  await detail(page).getByText("1.0.0", { exact: true }).waitFor();
  const values = page.getByRole("form", { name: "Options of dice" });
  assert.equal(await values.getByRole("textbox", { name: /^Sides/ }).inputValue(), "20");
}

/** Files of the plugin directory that ask for more than was approved wait for a person, who reads their plan. */
async function approveDirectory({ page, picture }, seconds) {
  const manifest = MANIFEST.replaceAll("dice", "lots").replace("wall_seconds: 20", `wall_seconds: ${seconds}`);
  const tool = JSON.stringify({ ...TOOL, id: "lots:draw" });
  const files = { "roll.py": SCRIPT, "tools/roll.tool.json": tool, "plugin.yaml": manifest };
  for (const [path, text] of Object.entries(files)) {
    await mkdir(join(DIRECTORY, "lots", path, ".."), { recursive: true });
    await writeFile(join(DIRECTORY, "lots", path), text);
  }
  await page.getByRole("link", { name: "Close" }).click();
  const entry = page.getByRole("link", { name: /^lots/ });
  await entry.getByText(/left out|has changes/).waitFor();
  await entry.click();
  await page.getByText(/not in force/).waitFor();
  await picture("directory");
  await page.getByRole("button", { name: "Show the plan" }).click();
  await planOf(page, "lots").getByLabel("Plan").getByText(`wall_seconds ${seconds}`).waitFor();
  await approve(page, "lots").click();
  await detail(page, "lots").getByText("From the directory lots").waitFor();
  await detail(page, "lots").getByText("not in force").waitFor({ state: "detached" });
}

/** A plugin is removed after a question, which names its tools. */
async function remove({ page, picture, address }) {
  await page.goto(`${address}/console#/plugins/dice`);
  await detail(page).getByRole("button", { name: "Remove" }).click();
  const asked = detail(page).getByRole("group", { name: "Remove dice" });
  await asked.getByText("dice:roll").waitFor();
  await asked.getByRole("button", { name: "Keep" }).click();
  await detail(page).getByRole("button", { name: "Remove" }).click();
  await asked.getByRole("checkbox").check();
  await asked.scrollIntoViewIfNeeded();
  await picture("remove");
  await asked.getByRole("button", { name: "Remove dice" }).click();
  await page.getByRole("link", { name: /^dice/ }).waitFor({ state: "detached" });
  await page.getByRole("link", { name: /^lots/ }).waitFor();
  const headers = { "content-type": "application/json" };
  const body = JSON.stringify({ toolId: "dice:roll", argumentsJson: "{}" });
  const answer = await fetch(`${address}/tavern.registry.v1.CallService/StartCall`, { method: "POST", headers, body });
  assert.match(await answer.text(), /removed/);
}
