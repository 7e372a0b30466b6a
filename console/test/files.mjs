// Plays the files of a conversation and the results of its calls on the page, in each look. A conversation begins with
// a file that is dropped, before any message.
import assert from "node:assert/strict";
import { deflateSync } from "node:zlib";
import { join } from "node:path";

import { look, LOOKS, onPage, withBrowser } from "./harness.mjs";
import { dropFiles, file, panel } from "./panel.mjs";

const SALES = "month,sum\nJan,10\nFeb,12\nMar,9\n";
const PICTURE = "results/0123456789abcdef.png";

await withBrowser(async (browser, address, pictures) => {
  for (const { size: viewport, colorScheme } of LOOKS) {
    await onPage(browser, { address, pictures, viewport, colorScheme }, async (page, complaints) => {
      const picture = (view) => {
        const name = `files-${view}-${viewport.width}-${colorScheme}`;
        return look(page, join(pictures, `${name}.png`), name);
      };
      const isNarrow = viewport.width < 900;
      const play = { page, picture, address, complaints, isNarrow };
      await page.goto(`${address}/console`);
      await page.getByRole("option", { name: "shower" }).waitFor({ state: "attached" });
      const id = await drop(play);
      await reload(play, id);
      await ask(play, id);
      await openAndDelete(play, id);
      await refuse(play);
      if (isNarrow) await page.getByRole("link", { name: "All conversations" }).click();
      else await page.getByRole("link", { name: "New conversation" }).click();
      await panel(page).locator(".file").first().waitFor({ state: "detached" });
    });
  }
});

/** Drops files on the panel of a new conversation, which has an address from then on. Returns its id. */
async function drop({ page, picture, isNarrow }) {
  if (isNarrow) await panel(page).locator("summary").click();
  await picture("none");
  await dropFiles(page, { "sales.csv": SALES, "说明 1.txt": "备注" });
  await file(page, "sales.csv").getByText("30 bytes").waitFor();
  await file(page, "说明 1.txt").waitFor();
  await page.waitForURL(/#\/chat\/conv_[0-9a-f]{32}$/);
  await picture("dropped");
  return decodeURIComponent(new URL(page.url()).hash.replace("#/chat/", ""));
}

/** A conversation that has files and no message yet is there after a reload. */
async function reload({ page, complaints, isNarrow }, id) {
  await page.reload();
  await page.getByText(id, { exact: true }).waitFor();
  if (isNarrow) await panel(page).locator("summary").click();
  await file(page, "sales.csv").waitFor();
  assert.equal(await page.getByRole("alert").count(), 0);
  // The browser reports by itself that no message is there.
  assert.match(complaints.splice(0).join(), /^[^,]*404[^,]*(,[^,]*404[^,]*)?$/);
}

/** Asks in the conversation; the results of the call are shown in their order, and run nothing. */
async function ask({ page, picture, address, isNarrow }, id) {
  const put = await fetch(`${address}/v1/conversations/${id}/files/${PICTURE}`, { method: "PUT", body: chart(320, 120) });
  assert.equal(put.status, 201);
  if (isNarrow) await panel(page).locator("summary").click();
  await page.getByRole("combobox", { name: /^To/ }).selectOption({ label: "shower" });
  await page.getByRole("textbox", { name: "Message" }).fill("Draw the sales.");
  await page.getByRole("button", { name: "Send" }).click();
  const turn = page.getByRole("article", { name: "Turn 1" });
  await turn.getByText("Done.").waitFor();
  assert.equal(new URL(page.url()).hash, `#/chat/${id}`);
  const results = turn.getByRole("list", { name: "Results" });
  const shown = results.locator(":scope > li");
  assert.equal(await shown.count(), 9);
  const drawn = shown.nth(0).locator("img");
  await drawn.scrollIntoViewIfNeeded();
  await page.waitForFunction((image) => image.complete && image.naturalWidth === 320, await drawn.elementHandle());
  assert.match(await drawn.getAttribute("src"), /\/files\/results\/0123456789abcdef\.png$/);

  const table = shown.nth(1).locator("iframe");
  assert.equal(await table.getAttribute("sandbox"), "");
  await shown.nth(1).frameLocator("iframe").getByRole("cell", { name: "Jan" }).waitFor();
  assert.equal(await inFrame(shown.nth(1), "script, img, iframe, link, form, [href], [onclick]"), 0);
  const drawing = shown.nth(2).frameLocator("iframe");
  await drawing.getByText("A drawing").waitFor();
  assert.equal(await drawing.locator("use").getAttribute("fill"), "#1f77b4");
  assert.equal(await inFrame(shown.nth(2), "script, image, [onload], body body"), 0);
  await shown.nth(3).getByText("| Jan | 10 |").waitFor();
  await shown.nth(4).getByText("\\frac").waitFor();
  await shown.nth(5).getByText("<b>plain</b>").waitFor();
  const inline = shown.nth(6).locator("img");
  await page.waitForFunction((image) => image.complete && image.naturalWidth === 1, await inline.elementHandle());
  await shown.nth(7).getByText("application/x-unknown, 2.0 KiB").waitFor();
  assert.equal(await results.getByText("never").count(), 0);
  assert.equal(await page.title(), "Tavern");

  const changes = turn.getByRole("list", { name: "Changed files" });
  await changes.getByText("created out/report.csv (812 bytes)").waitFor();
  await changes.getByText("removed old.csv").waitFor();
  await changes.getByText("beside a (cell 4).csv").waitFor();
  // The list of files is read again after the call.
  if (isNarrow) await panel(page).locator("summary").click();
  await file(page, PICTURE).waitFor();
  await picture("results");
  if (isNarrow) await panel(page).locator("summary").click();
  for (const [at, view] of ["picture", "table", "drawing"].entries()) {
    await shown.nth(at).scrollIntoViewIfNeeded();
    await picture(view);
  }
  if (isNarrow) await panel(page).locator("summary").click();
}

/** Counts elements in the frame of a result. */
function inFrame(result, selector) {
  return result.frameLocator("iframe").locator(`body ${selector.replaceAll(", ", ", body ")}`).count();
}

/** A file is opened in place, saved, and deleted after a question. */
async function openAndDelete({ page, picture }) {
  const opened = page.context().waitForEvent("page");
  await file(page, "sales.csv").getByRole("link", { name: "sales.csv" }).click();
  const shown = await opened;
  await shown.getByText("Jan,10").waitFor();
  await shown.close();
  const saved = page.waitForEvent("download");
  await file(page, "说明 1.txt").getByRole("link", { name: "Save" }).click();
  assert.equal((await saved).suggestedFilename(), "说明 1.txt");

  await file(page, "说明 1.txt").getByRole("button", { name: "Delete" }).click();
  await picture("delete");
  await file(page, "说明 1.txt").getByRole("button", { name: "Keep" }).click();
  await file(page, "说明 1.txt").getByRole("button", { name: "Delete" }).click();
  await file(page, "说明 1.txt").getByRole("button", { name: "Delete" }).click();
  await file(page, "说明 1.txt").waitFor({ state: "detached" });
  await file(page, "sales.csv").waitFor();
}

/** A file that is refused says why, until that is dismissed; a chosen file replaces the one of its name. */
async function refuse({ page, picture, complaints }) {
  const choose = panel(page).getByLabel("Add files");
  await choose.setInputFiles([{ name: "SALES.csv", mimeType: "text/csv", buffer: Buffer.from("x") }]);
  await panel(page).getByRole("alert").getByText(/case/).waitFor();
  await picture("refused");
  assert.match(complaints.splice(0).join(), /400/);
  await panel(page).getByRole("button", { name: "Dismiss" }).click();
  await panel(page).getByRole("alert").waitFor({ state: "detached" });
  await choose.setInputFiles([{ name: "sales.csv", mimeType: "text/csv", buffer: Buffer.from("month,sum\n") }]);
  await file(page, "sales.csv").getByText("10 bytes").waitFor();
}

/** Makes a picture with three bars. */
function chart(width, height) {
  const row = (y) => {
    const pixels = Buffer.alloc(1 + width * 3, 255);
    pixels[0] = 0;
    for (let x = 0; x < width; x += 1) {
      const bar = Math.floor(x / (width / 3));
      const isBar = x % (width / 3) > width / 12 && height - y < [80, 100, 60][bar];
      if (isBar) pixels.set([31, 119, 180], 1 + x * 3);
    }
    return pixels;
  };
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 2, 0, 0, 0], 8);
  const content = deflateSync(Buffer.concat(Array.from({ length: height }, (_, y) => row(y))));
  return Buffer.concat([Buffer.from("\x89PNG\r\n\x1a\n", "latin1"), chunk("IHDR", header), chunk("IDAT", content), chunk("IEND", Buffer.alloc(0))]);
}

function chunk(type, content) {
  const whole = Buffer.concat([Buffer.from(type), content]);
  const ends = [Buffer.alloc(4), Buffer.alloc(4)];
  ends[0].writeUInt32BE(content.length);
  ends[1].writeUInt32BE(crc(whole));
  return Buffer.concat([ends[0], whole, ends[1]]);
}

function crc(bytes) {
  let sum = 0xffffffff;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit += 1) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return (sum ^ 0xffffffff) >>> 0;
}
