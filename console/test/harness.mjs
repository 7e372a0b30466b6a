// A headless Chromium for the plays of the page, and the flaws that a view must not have.
import assert from "node:assert/strict";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";

import { chromium } from "playwright-core";

/** The widths at which the page is shown, in pixels, with a height each. */
export const SIZES = [{ width: 390, height: 844 }, { width: 1280, height: 800 }];
const SCHEMES = ["light", "dark"];
const EVERY_LOOK = SIZES.flatMap((size) => SCHEMES.map((colorScheme) => ({ size, colorScheme })));

/**
 * The looks of the page: each width and each scheme once, or with each other if TAVERN_TEST_LOOKS is `all`, as
 * `make bars` sets it.
 */
export const LOOKS = EVERY_LOOK.filter(
  ({ size, colorScheme }) => process.env.TAVERN_TEST_LOOKS === "all" || SIZES.indexOf(size) === SCHEMES.indexOf(colorScheme),
);

/** Calls `play` with a browser and the address and directory of the command line, and closes the browser. */
export async function withBrowser(play) {
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
  try {
    await play(browser, address, pictures);
  } finally {
    await browser.close();
  }
}

/**
 * Calls `play` with an empty page and the list of its complaints: errors of the console and of scripts, and requests
 * to other hosts. The list must be empty at the end. A failure leaves a picture.
 */
export async function onPage(browser, { address, pictures, ...options }, play) {
  // Behind a proxy of the tests the page comes with their own certificate.
  const context = await browser.newContext({ ignoreHTTPSErrors: true, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  const complaints = [];
  page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("request", (request) => {
    const { host } = new URL(request.url());
    if (host !== new URL(address).host) complaints.push(`a request to ${host}`);
  });
  try {
    await play(page, complaints);
    assert.deepEqual(complaints, []);
  } catch (error) {
    await page.screenshot({ path: join(pictures, "failure.png") }).catch(() => {});
    throw error;
  } finally {
    await context.close();
  }
}

/** The time after which an open page has looked again at everything that waits, in milliseconds. */
export const LOOKED_AGAIN = 5_000;

/** Takes a picture of a page as it is, and finds text that is cut off or overlaps. */
export async function look(page, path, name) {
  await page.screenshot({ path });
  assert.deepEqual(await page.evaluate(flaws), [], name);
}

/** Takes pictures of a page as it is in each look. */
export async function lookEverywhere(page, pictures, name) {
  for (const { size, colorScheme } of LOOKS) {
    await page.setViewportSize(size);
    await page.emulateMedia({ colorScheme });
    await look(page, join(pictures, `${name}-${size.width}-${colorScheme}.png`), `${name} at ${size.width} px`);
  }
  await page.emulateMedia({ colorScheme: "light" });
}

/** Runs in the page. Returns what is wrong with the view, a sentence each. */
function flaws() {
  const found = [];
  const seen = (element) => element.checkVisibility() && element.getClientRects().length > 0;
  const own = (element) => [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE && node.data.trim() !== "");
  const words = (element) => (element.value ?? element.textContent).slice(0, 40);
  const style = (element) => getComputedStyle(element);
  const hides = (overflow) => overflow === "hidden" || overflow === "clip";
  const scrolls = (element) => [style(element).overflowX, style(element).overflowY].includes("auto");
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth + 1) found.push("the page scrolls sideways");
  const texts = [...document.body.querySelectorAll("*")].filter((element) => seen(element) && !element.closest("svg") && own(element).length > 0);
  for (const element of texts) {
    const box = element.getBoundingClientRect();
    if (box.right > innerWidth + 1 || box.left < -1) found.push(`beyond the edge: ${words(element)}`);
    if (element.clientWidth > 0 && element.scrollWidth > element.clientWidth + 1) found.push(`cut off: ${words(element)}`);
    const range = document.createRange();
    for (const text of own(element)) {
      range.selectNodeContents(text);
      const drawn = range.getBoundingClientRect();
      // Beyond a part that scrolls, nothing is lost.
      for (let around = element; around && !scrolls(around); around = around.parentElement) {
        const { overflowX, overflowY } = style(around);
        const edge = around.getBoundingClientRect();
        const across = hides(overflowX) && (drawn.right > edge.right + 1 || drawn.left < edge.left - 1);
        const down = hides(overflowY) && (drawn.bottom > edge.bottom + 1 || drawn.top < edge.top - 1);
        const lines = hides(overflowY) && around.scrollHeight > around.clientHeight + 1;
        if (across || down || lines) found.push(`hidden: ${words(element)}`);
      }
    }
  }
  // Controls draw their texts themselves: they are measured as they are written.
  const pen = document.createElement("canvas").getContext("2d");
  for (const control of [...document.querySelectorAll("select, input:not([type=password], [type=checkbox])")].filter(seen)) {
    const { font, paddingLeft, paddingRight } = style(control);
    const isList = control.matches("select");
    const text = isList ? (control.selectedOptions[0]?.textContent ?? "") : control.value || control.placeholder;
    pen.font = font;
    const room = control.clientWidth - Number.parseFloat(paddingLeft) - Number.parseFloat(paddingRight) - (isList ? 12 : 0);
    if (pen.measureText(text).width > room + 1) found.push(`cut off in its control: ${text.slice(0, 40)}`);
  }
  for (const box of [...document.querySelectorAll("textarea")].filter((box) => seen(box) && box.value === "")) {
    box.value = box.placeholder;
    if (box.scrollHeight > box.clientHeight + 1) found.push(`cut off in its box: ${box.placeholder}`);
    box.value = "";
  }
  const controls = [...document.querySelectorAll(".bar a, .bar h1, .composer label, button, .runhead > *, .conversations a")].filter(seen);
  for (const [at, one] of controls.entries()) {
    for (const other of controls.slice(at + 1)) {
      if (one.contains(other) || other.contains(one)) continue;
      const [a, b] = [drawnPart(one), drawnPart(other)];
      const apart = a.right <= b.left + 1 || b.right <= a.left + 1 || a.bottom <= b.top + 1 || b.bottom <= a.top + 1;
      if (!apart) found.push(`overlap: ${words(one)} and ${words(other)}`);
    }
  }
  return found;

  /** Returns the box of an element as far as the parts of the page that it scrolls in show it. */
  function drawnPart(element) {
    let { left, right, top, bottom } = element.getBoundingClientRect();
    for (let around = element.parentElement; around; around = around.parentElement) {
      if (!scrolls(around)) continue;
      const edge = around.getBoundingClientRect();
      top = Math.max(top, edge.top);
      bottom = Math.min(bottom, edge.bottom);
    }
    return { left, right, top, bottom };
  }
}
