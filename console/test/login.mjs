// Plays callers with keys on the page: from a server without keys to the end of one key in the middle of a run. Each
// caller has a browser of its own.
import assert from "node:assert/strict";
import { createServer } from "node:http";

import { LOOKED_AGAIN, lookEverywhere, onPage, withBrowser } from "./harness.mjs";

/** A script that writes a line, and runs on. */
const SLOW = `<ACTION><CodeInterpreter:execute><language>python</language><code>
import time
print('first', flush=True)
time.sleep(600)
</code></CodeInterpreter:execute></ACTION>`;

/** The refusals that the browser reports by itself: of a call, and of a WebSocket. */
const REFUSED = /status of 40[13] |WebSocket connection to .* failed/;

await withBrowser(async (browser, address, pictures) => {
  const play = { browser, address, pictures };
  const admin = await close(play);
  const keyOf = async (name, roles, groups = []) => {
    const { secretKey } = await admin("CreateKey", { principal: name, roles });
    await admin("PutPrincipal", { principal: { name, roles, groups } });
    return secretKey;
  };
  const keys = {
    ada: await keyOf("ada", ["invoker"]),
    mara: await keyOf("mara", ["invoker", "approver"], ["storykeeper"]),
    sage: await keyOf("sage", ["approver"], ["storykeeper"]),
    omar: await keyOf("omar", ["operator"]),
    vera: await keyOf("vera", ["viewer"]),
  };
  await follow(play, keys);
  const ada = await lose(play, keys, admin);
  // A viewer sees its own conversations and runs.
  await admin("PutPrincipal", { principal: { name: "ada", roles: ["viewer"] } });
  await view(play, ada);
  await intrude(play, keys);
});

/** Opens a page and calls `play` with it; no key is in an address, a header or a store of the browser. */
async function caller({ browser, address, pictures }, play) {
  await onPage(browser, { address, pictures }, async (page, complaints) => {
    const sent = { requests: [], sockets: 0 };
    page.on("request", (request) => {
      sent.requests.push(request.url());
      if (request.url() === `${address}/v1/login`) return;
      assert.doesNotMatch(JSON.stringify([request.url(), request.headers(), request.postData()]), /tvk_/);
    });
    page.on("websocket", (socket) => {
      sent.sockets += 1;
      assert.equal(new URL(socket.url()).search, "");
    });
    // The page's time is that of the clock until the play makes it pass.
    await page.clock.install();
    await page.goto(`${address}/console`);
    await play(page, sent);
    assert.equal(await page.evaluate(() => document.cookie + JSON.stringify({ ...localStorage, ...sessionStorage })), "{}");
    complaints.splice(0, Infinity, ...complaints.filter((complaint) => !REFUSED.test(complaint)));
  });
}

/** A server without keys says so; its first key ends that on an open page. Returns calls by that key. */
async function close(play) {
  let call;
  await caller(play, async (page) => {
    await page.getByText("open: no keys").waitFor();
    await lookEverywhere(page, play.pictures, "login-open");
    const { secretKey } = await identity(play.address, "Bootstrap", {});
    call = (method, request) => identity(play.address, method, request, secretKey);
    await page.clock.runFor(LOOKED_AGAIN);
    await page.getByRole("alert").getByText("This server needs a key from now on.").waitFor();
    await page.reload();
    await form(page).waitFor();
    assert.equal(await page.locator("nav, main").count(), 0);
    await lookEverywhere(page, play.pictures, "login");

    await logIn(page, `${secretKey.slice(0, -1)}!`);
    await form(page).getByRole("alert").getByText("The server does not accept this key.").waitFor();
    await lookEverywhere(page, play.pictures, "login-refused");
    await logIn(page, secretKey);
    await who(page).getByText("admin", { exact: true }).first().waitFor();
    const [cookie] = await page.context().cookies();
    const { name, httpOnly, sameSite, path, secure } = cookie;
    assert.deepEqual({ name, httpOnly, sameSite, path, secure }, { name: "tavern_login", httpOnly: true, sameSite: "Strict", path: "/", secure: false });
    assert.doesNotMatch(cookie.value, /tvk_/);
  });
  return call;
}

/** A caller starts a run and follows it; another one approves a call of it, as itself, and none of its own. */
async function follow(play, { ada, mara, omar, vera }) {
  await caller(play, async (page) => {
    await logIn(page, ada);
    await who(page).getByText("invoker").waitFor();
    await lookEverywhere(page, play.pictures, "login-chat");
    const turn = await give(page);
    await turn.getByText("The call acts for you").waitFor();
    assert.equal(await page.getByRole("form", { name: "Decide" }).count(), 0);

    await caller(play, async (page) => {
      await logIn(page, vera);
      await open(page, "Inbox");
      await page.getByText("No call waits for an approval.").waitFor();
    });
    await caller(play, async (page) => {
      await logIn(page, omar);
      await open(page, "Inbox", "1");
      const approvals = page.getByRole("region", { name: "Approvals" });
      await approvals.getByText("the permission approve is missing").waitFor();
      await approvals.getByLabel("Arguments").getByText("ring").waitFor();
      assert.equal(await page.getByRole("form", { name: "Decide" }).count(), 0);
    });
    await caller(play, async (page) => {
      await logIn(page, mara);
      await open(page, "Inbox", "1");
      const decision = page.getByRole("region", { name: "Approvals" }).getByRole("form", { name: "Decide" });
      await decision.waitFor();
      assert.equal(await page.getByLabel(/^Your key/).count(), 0);
      await lookEverywhere(page, play.pictures, "login-approval");
      await decision.getByRole("button", { name: "Approve" }).click();
      await page.getByText("No call waits for an approval.").waitFor();
      await open(page, "Chat");
      const own = await give(page);
      await own.getByText("The call acts for you").waitFor();
      assert.equal(await page.getByRole("form", { name: "Decide" }).count(), 0);
      await own.getByRole("button", { name: "Cancel" }).click();
      await own.getByText("cancelled").first().waitFor();
    });
    await turn.locator(".runhead").getByText("succeeded").waitFor();
    await turn.getByText(/approved by mara/).waitFor();
  });
}

/** Begins a conversation whose turn waits for an approval, and returns the turn. */
async function give(page) {
  await page.getByRole("combobox", { name: /^To/ }).selectOption({ label: "giver" });
  await page.getByRole("textbox", { name: "Message" }).fill("Give the ring.");
  await page.getByRole("button", { name: "Send" }).click();
  const turn = page.getByRole("article", { name: "Turn 1" });
  await turn.locator(".runhead").getByText("waiting (approval)").waitFor();
  return turn;
}

/**
 * A key ends in the middle of a run: the page says so, stays readable and quiet, and continues after a login. Returns
 * the next key of the caller.
 */
async function lose(play, { ada }, admin) {
  let next;
  await caller(play, async (page, sent) => {
    await logIn(page, ada);
    await page.getByRole("combobox", { name: /^To/ }).selectOption({ label: "Model text" });
    await page.getByRole("textbox", { name: "Model text" }).fill(SLOW);
    await page.getByRole("button", { name: "Send" }).click();
    const output = page.getByLabel("Output").getByText("first");
    await output.waitFor();

    await admin("RevokeKeys", { principal: "ada" });
    await page.getByRole("alert").getByText("Your key has ended, or your login with it.").waitFor();
    await page.getByLabel("Timeline").getByText("Your key has ended.").waitFor();
    assert.ok(await output.isVisible());
    await lookEverywhere(page, play.pictures, "login-ended");
    await page.keyboard.press("Alt+1");
    assert.ok(await page.locator(".composer textarea").isDisabled());
    await page.goBack();
    await output.waitFor();
    const before = { requests: sent.requests.length, sockets: sent.sockets };
    await page.clock.runFor(60_000);
    assert.deepEqual({ requests: sent.requests.length, sockets: sent.sockets }, before, "the page stays quiet");

    await logIn(page, ada);
    await form(page).getByRole("alert").getByText("The server does not accept this key.").waitFor();
    ({ secretKey: next } = await admin("CreateKey", { principal: "ada" }));
    await logIn(page, next);
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("status").getByText("cancelled").waitFor();
    assert.ok(await output.isVisible());

    await page.getByRole("button", { name: "Log out" }).click();
    await form(page).waitFor();
    assert.equal(await page.locator("nav, main").count(), 0);
    assert.deepEqual(await page.context().cookies(), []);
  });
  return next;
}

/** A viewer reads everything of its own, and is offered nothing that starts or decides anything. */
async function view(play, key) {
  const harmless = ["Log out", "Newer", "Older", "Zoom out", "Zoom in", "Fit"];
  await caller(play, async (page) => {
    await logIn(page, key);
    await who(page).getByText("viewer").waitFor();
    const offered = async (view) => {
      const names = await page.getByRole("button").evaluateAll((all) => all.map((one) => one.ariaLabel ?? one.textContent.trim()));
      assert.deepEqual(names.filter((name) => !harmless.includes(name)), [], view);
      assert.equal(await page.locator("textarea").count(), 0, view);
      await lookEverywhere(page, play.pictures, `login-viewer-${view}`);
    };
    await page.getByText("Choose a conversation.").waitFor();
    await offered("chat");
    await page.getByRole("navigation", { name: "Conversations" }).getByRole("link").last().click();
    await page.getByRole("article", { name: "Turn 1" }).getByText("succeeded").first().waitFor();
    await offered("conversation");
    await open(page, "Tools");
    await page.getByRole("link", { name: /^workflow:grant_item/ }).click();
    await page.getByLabel("Parameters").waitFor();
    await offered("tool");
    await open(page, "Workflows");
    await page.getByRole("link", { name: /^grant_item/ }).click();
    await page.getByText("the permission invoke is missing").waitFor();
    await offered("workflow");
    await open(page, "Runs");
    await page.locator(".list a").first().click();
    await page.getByLabel("Timeline").getByText("cancelled").first().waitFor();
    await offered("run");
    await open(page, "Inbox");
    await page.getByText("No call waits for an approval.").waitFor();
    await offered("inbox");
    await open(page, "Plugins");
    await page.getByRole("link", { name: /^first-aid/ }).click();
    assert.ok(await page.getByRole("form", { name: "Options of first-aid" }).getByLabel("number").isDisabled());
    assert.ok(await page.getByRole("switch", { name: "Switched on" }).isDisabled());
    assert.equal(await page.getByLabel("Add a plugin").count(), 0);
    await offered("plugin");

    // A page that offers more than the server allows explains the refusal, and offers it no longer.
    let isWrong = true;
    await page.route(/GetCaller$/, async (route) => {
      const response = await route.fetch();
      const { caller } = await response.json();
      if (isWrong) caller.permissions.push("invoke");
      await route.fulfill({ response, json: { caller } });
    });
    await page.reload();
    await open(page, "Workflows");
    await page.getByRole("link", { name: /^grant_item/ }).click();
    const run = page.getByRole("form", { name: "Run grant_item" });
    for (const field of ["item", "to", "value"]) await run.getByLabel(new RegExp(`^${field}`)).fill("7");
    const refused = page.waitForResponse(/StartRun$/);
    await run.getByRole("button", { name: "Run" }).click();
    assert.equal((await refused).status(), 403);
    await run.getByRole("alert").getByText("invoke").waitFor();
    await lookEverywhere(page, play.pictures, "login-denied");
    isWrong = false;
    await run.getByRole("button", { name: "Run" }).click();
    await run.waitFor({ state: "detached" });
  });
}

/** A page of another origin logs no one in and frames no page, and a form logs in from nowhere. */
async function intrude({ browser, address }, { vera }) {
  const login = `${address}/v1/login`;
  const body = JSON.stringify({ key: vera });
  const foreign = createServer((_, answer) => {
    answer.setHeader("content-type", "text/html");
    // The field is JSON around its equals sign.
    answer.end(`<iframe src="${address}/console"></iframe>
      <form method="post" action="${login}" enctype="text/plain">
        <input type="hidden" name='${body.replace("}", ', "rest": "')}' value='"}'><button>Win</button>
      </form>`);
  });
  await new Promise((resolve) => foreign.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${foreign.address().port}`;
  const context = await browser.newContext();
  try {
    const page = await context.newPage();
    const framed = page.waitForResponse(`${address}/console`);
    await page.goto(origin);
    await framed;
    assert.equal(await page.frameLocator("iframe").locator("#app").count(), 0, "the page is not framed");
    const scripted = page.waitForResponse(login);
    const init = { method: "POST", mode: "no-cors", credentials: "include", body };
    await page.evaluate(([login, init]) => fetch(login, init), [login, init]);
    assert.equal((await scripted).status(), 403);
    const submitted = page.waitForResponse(login);
    await page.getByRole("button", { name: "Win" }).click();
    assert.equal((await submitted).status(), 403);
    assert.deepEqual(await context.cookies(), []);
  } finally {
    await context.close();
    foreign.close();
  }
  const requests = [
    ["application/json", origin, 403],
    ["application/x-www-form-urlencoded", address, 415],
    ["multipart/form-data; boundary=b", address, 415],
    ["text/plain", address, 415],
    ["application/json", address, 204],
  ];
  for (const [kind, origin, status] of requests) {
    const answer = await fetch(login, { method: "POST", headers: { "content-type": kind, origin }, body });
    assert.equal(answer.status, status, `${kind} of ${origin}`);
    assert.equal(answer.headers.has("set-cookie"), status === 204, `${kind} of ${origin}`);
  }
}

/** Calls a method of the identity service. */
async function identity(address, method, request, key = "") {
  const headers = { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) };
  const url = `${address}/tavern.registry.v1.IdentityService/${method}`;
  const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(request) });
  const body = await answer.json();
  assert.ok(answer.ok, `${method}: ${JSON.stringify(body)}`);
  return body;
}

function form(page) {
  return page.getByRole("form", { name: "Log in" });
}

function who(page) {
  return page.getByRole("group", { name: "Caller" });
}

async function logIn(page, key) {
  await form(page).getByLabel(/^Key/).fill(key);
  await form(page).getByRole("button", { name: "Log in" }).click();
}

/** Opens a view by its place in the bar; `count` is the number beside its name. */
async function open(page, view, count = "") {
  await page.getByRole("navigation", { name: "Views" }).getByRole("link", { name: `${view}${count}`, exact: true }).click();
}
