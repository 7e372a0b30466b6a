// Plays what people do on the page who know no address of a run: they hold a conversation, and decide all that waits
// for them. Each play begins anew, in each look.
import assert from "node:assert/strict";
import { join } from "node:path";

import { look, LOOKS, onPage, withBrowser } from "./harness.mjs";

await withBrowser(async (browser, address, pictures) => {
  for (const { size: viewport, colorScheme } of LOOKS) {
    const name = (view) => `people-${view}-${viewport.width}-${colorScheme}`;
    await onPage(browser, { address, pictures, viewport, colorScheme }, async (page, complaints) => {
      const picture = (view) => look(page, join(pictures, `${name(view)}.png`), name(view));
      await page.goto(`${address}/console`);
      const play = { page, complaints, picture, isNarrow: viewport.width < 640, address };
      await talk(play);
      await approve(play);
      await resolve(play);
      await answer(play);
    });
  }
});

/** A conversation of three messages with a reload between them, found again in the list. */
async function talk({ page, picture, isNarrow, address }) {
  await page.getByRole("option", { name: "friend" }).waitFor({ state: "attached" });
  await picture("start");
  await send(page, "friend", "My name is Mara.");
  await turn(page, 1).getByText("Hello, Mara.").waitFor();
  await state(page, 1, "succeeded");
  await page.waitForURL(/#\/chat\/.+/);
  const id = decodeURIComponent(new URL(page.url()).hash.replace("#/chat/", ""));
  await page.getByLabel("Conversation", { exact: true }).getByText(id, { exact: true }).waitFor();
  await picture("first");
  await send(page, undefined, "How are you?");
  await turn(page, 2).getByText("Well, Mara.").waitFor();
  await state(page, 2, "succeeded");

  await page.reload();
  await turn(page, 1).getByText("My name is Mara.").waitFor();
  await turn(page, 2).getByText("Well, Mara.").waitFor();
  await state(page, 2, "succeeded");
  await send(page, undefined, "Goodbye.");
  await turn(page, 3).getByText(/^Goodbye, Mara/).waitFor();
  await state(page, 3, "succeeded");
  await picture("third");

  // The list has it, by its first message and its id, and opens it again from a page that knows nothing.
  await page.goto(`${address}/console`);
  await page.reload();
  const entry = page.getByRole("navigation", { name: "Conversations" }).getByRole("link").filter({ hasText: id });
  await entry.getByText("My name is Mara.").waitFor();
  await picture("conversations");
  await entry.click();
  await turn(page, 3).getByText(/^Goodbye, Mara/).waitFor();
  if (isNarrow) await page.getByRole("link", { name: "All conversations" }).click();
  else await page.getByRole("link", { name: "New conversation" }).click();
  await turn(page, 1).waitFor({ state: "detached" });
}

/** A call that waits for an approval is counted, found and decided; the key is asked for in words. */
async function approve({ page, complaints, picture }) {
  await send(page, "giver", "Give the ring.");
  await state(page, 1, "waiting (approval)");
  await picture("waits");
  const approval = await waitingEntry(page, { section: "Approvals", shown: "waiting (approval)" });
  await approval.getByText("workflow:grant_item").waitFor();
  const decision = approval.getByRole("form", { name: "Decide" });
  await decision.getByRole("button", { name: "Approve" }).click();
  await decision.getByRole("alert").getByText("Enter the key of an approver.").waitFor();
  await decision.getByLabel(/^Your key/).fill("wrong");
  await decision.getByRole("button", { name: "Approve" }).click();
  await decision.getByRole("alert").getByText("No approver has this key.").waitFor();
  assert.doesNotMatch(await decision.innerText(), /authorization|bearer/i);
  // The browser reports the refusal of the wrong key by itself.
  assert.match(complaints.pop() ?? "", /401/);
  await picture("approval");
  // What is being written outlives another look at the list.
  const looked = page.waitForResponse(/ListApprovals/);
  await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  await looked;
  assert.equal(await decision.getByLabel(/^Your key/).inputValue(), "wrong");
  await decision.getByLabel(/^Your key/).fill(process.env.TAVERN_APPROVER_KEY);
  await decision.getByRole("button", { name: "Approve" }).click();
  await approval.waitFor({ state: "detached" });
  await page.getByText("No call waits for an approval.").waitFor();
  await open(page, "Chat");
  await turn(page, 1).getByText("player now has the ring, worth 80.").first().waitFor();
  await state(page, 1, "succeeded");
}

/** A call in doubt is counted, found and resolved. */
async function resolve({ page, picture }) {
  await begin(page, "doubter", "Append it.");
  const doubtful = await waitingEntry(page, { section: "Calls in doubt", shown: "waiting (in doubt)" });
  await doubtful.getByText("ledger.append_in_haste", { exact: true }).waitFor();
  await doubtful.getByRole("button", { name: "Took effect" }).waitFor();
  await picture("doubt");
  await doubtful.getByLabel(/^Output/).fill('{"appended": true}');
  await doubtful.getByRole("button", { name: "Took effect" }).click();
  await doubtful.waitFor({ state: "detached" });
  await page.getByText("No call is in doubt.").waitFor();
  await open(page, "Chat");
  await state(page, 1, "succeeded");
}

/** A question of an agent is counted, found, answered, and gone. */
async function answer({ page, picture }) {
  await begin(page, "asker", "I have a cough.");
  const question = await waitingEntry(page, { section: "Questions", shown: "waiting (question)", listed: "waiting" });
  await question.getByText("Which herb?").waitFor();
  await picture("question");
  await question.getByRole("button", { name: "sage" }).click();
  await question.waitFor({ state: "detached" });
  await page.getByText("Nothing is asked.").waitFor();
  await page.getByRole("link", { name: /^Inbox$/ }).waitFor();
  await picture("nothing");
  await open(page, "Chat");
  await state(page, 1, "succeeded");
}

function turn(page, number) {
  return page.getByRole("article", { name: `Turn ${number}` });
}

/** Waits until a turn is in a state. */
async function state(page, number, text) {
  await turn(page, number).locator(".runhead").getByText(text, { exact: true }).waitFor();
}

/** Writes a message; to the agent that a conversation has by itself unless one is named. */
async function send(page, to, text) {
  if (to) await page.getByRole("combobox", { name: /^To/ }).selectOption({ label: to });
  await page.getByRole("textbox", { name: "Message" }).fill(text);
  await page.getByRole("button", { name: "Send" }).click();
}

/** Begins a conversation beside the one that is open. */
async function begin(page, to, text) {
  await page.getByRole("link", { name: /^(All conversations|New conversation)$/ }).filter({ visible: true }).first().click();
  await send(page, to, text);
}

/**
 * Returns the entry of the turn that waits, the only one of the inbox. `shown` is the state of the turn in its
 * conversation, `listed` that of its run in the list of runs.
 */
async function waitingEntry(page, { section, shown, listed = shown }) {
  await state(page, 1, shown);
  await states(page, listed);
  await open(page, "Inbox", "1");
  return page.getByRole("region", { name: section }).getByRole("article");
}

/** Opens a view by its place in the bar; `count` is the number beside its name. */
async function open(page, view, count = "") {
  await page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: `${view}${count}`, exact: true }).click();
}

/** Checks the state of the newest run in the list of runs. */
async function states(page, state) {
  await open(page, "Runs");
  await page.locator(".list a").first().getByText(state).waitFor();
}
