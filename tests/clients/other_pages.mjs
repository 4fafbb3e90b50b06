// SPDX-License-Identifier: MIT
// What pages of other sites can do to a running server, in a browser: nothing, unless --cors names
// them. The server was started with --cors http://friend.example.
//
//   node tests/clients/other_pages.mjs http://127.0.0.1:8080
//
// The pages come from a little server here. The browser believes that evil.example and
// friend.example are this machine, as it would after a DNS rebinding. Prints a line for each case;
// exit status 1 if one failed. The browser is CHROMIUM, or Debian's.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { chromium } from "playwright-core";
import { baseFromArguments, check, finish, sleep } from "./checks.mjs";

const base = baseFromArguments("other_pages.mjs");
const ours = new URL(base);
const prompt = JSON.stringify({ prompt: "Once upon a time", max_tokens: 3 });

const pages = createServer((request, reply) => {
  const wraps = request.url === "/frame";
  reply.setHeader("Content-Type", "text/html");
  reply.end(wraps ? `<iframe sandbox="allow-scripts allow-forms" src="/"></iframe>`
                  : "<!doctype html><title>another site</title>");
});
await new Promise((done) => pages.listen(0, "127.0.0.1", done));
const { port } = pages.address();

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: [...(process.getuid() === 0 ? ["--no-sandbox"] : []),
         "--host-resolver-rules=MAP evil.example 127.0.0.1," +
         `MAP friend.example:80 127.0.0.1:${port}`],
});

// What the server has computed so far; what it tells may be a tenth of a second old.
async function computed() {
  await sleep(400);
  const text = await (await fetch(`${base}/metrics`)).text();
  const lines = text.split("\n").filter((line) => /^\w*(tokens|requests)\w*_total/.test(line));
  assert(lines.length > 0, "the metrics count tokens");
  return lines.join("\n");
}

// Runs `work` in a page of another site; the server must compute nothing and answer none of the
// requests that reached it. Gives their statuses.
async function attack(name, where, work, { inFrame = false } = {}) {
  await check(`${name}, from ${where}`, async () => {
    const before = await computed();
    const page = await browser.newPage();
    const statuses = [];
    page.on("response", (reply) => {
      const url = new URL(reply.url());
      if (url.port === ours.port) statuses.push(`${reply.status()} ${url.pathname}`);
    });
    await page.goto(where);
    const frame = inFrame ? page.frames()[1] : page.mainFrame();
    await work(frame, page);
    await page.close();
    for (const status of statuses) assert.match(status, /^4(03|21) /, `it was answered: ${status}`);
    assert.equal(await computed(), before, "it computed something");
  });
}

// The text that a page could read, or why it could not.
const read = (frame, url, options) => frame.evaluate(async ([url, options]) => {
  try {
    const reply = await fetch(url, options);
    return `${reply.type} ${reply.status} ${await reply.text()}`;
  } catch (error) {
    return `refused: ${error.name}`;
  }
}, [url, options]);

const refused = "refused: TypeError";
const opaque = "opaque 0 ";
const text = { "Content-Type": "text/plain" };
const json = { "Content-Type": "application/json" };

const readsNothing = async (frame) => {
  for (const path of ["/slots", "/state", "/metrics", "/v1/models", "/health", "/props"]) {
    assert.equal(await read(frame, base + path), refused, path);
    assert.equal(await read(frame, base + path, { mode: "no-cors" }), opaque, path);
  }
};

const postsNothing = async (frame) => {
  for (const path of ["/v1/completions", "/v1/chat/completions", "/tokenize", "/api/generate"]) {
    const options = { method: "POST", body: prompt };
    assert.equal(await read(frame, base + path, { ...options, headers: text }), refused, path);
    assert.equal(await read(frame, base + path, { ...options, headers: json }), refused, path);
    assert.equal(await read(frame, base + path, { ...options, mode: "no-cors" }), opaque, path);
  }
  const slot = `${base}/slots/0?action=erase`;
  assert.equal(await read(frame, slot, { method: "POST", mode: "no-cors" }), opaque);
  await frame.evaluate(([url, body]) => navigator.sendBeacon(url, body),
                       [`${base}/v1/completions`, prompt]);
};

// A form whose one field's name and value make up the JSON: text/plain writes "name=value".
const submitsNothing = async (frame, page) => {
  const answered = page.waitForEvent("response", (reply) => reply.url().startsWith(base));
  await frame.evaluate((action) => {
    const form = document.createElement("form");
    Object.assign(form, { action, method: "post", enctype: "text/plain" });
    const field = document.createElement("input");
    field.name = '{"max_tokens":3,"prompt":"Once upon a time","user":"';
    field.value = '"}';
    form.append(field);
    document.body.append(form);
    form.submit();
  }, `${base}/v1/completions`);
  assert.equal((await answered).status(), 403);
};

const embedsNothing = async (frame) => {
  const events = await frame.evaluate((base) => Promise.all(
    ["img", "script", "link", "iframe"].map((kind) => new Promise((done) => {
      const element = document.createElement(kind);
      element.onload = () => done(`${kind} loaded`);
      element.onerror = () => done(`${kind} failed`);
      if (kind === "link") Object.assign(element, { rel: "stylesheet", href: `${base}/slots` });
      else element.src = `${base}/${kind === "iframe" ? "state" : "slots"}`;
      document.body.append(element);
      if (kind === "iframe") setTimeout(() => done("iframe waited"), 2000);
    }))), base);
  for (const kind of ["img", "script", "link"]) assert(events.includes(`${kind} failed`), events);
};

const speaksNoSocket = async (frame) => {
  const said = await frame.evaluate((url) => new Promise((done) => {
    const socket = new WebSocket(url);
    socket.onopen = () => done("open");
    socket.onerror = () => done("refused");
  }), base.replace("http", "ws") + "/v1/models");
  assert.equal(said, "refused");
};

for (const where of [`http://127.0.0.1:${port}/`, `http://evil.example:${port}/`]) {
  await attack("reads nothing", where, readsNothing);
  await attack("posts nothing", where, postsNothing);
  await attack("submits nothing", where, submitsNothing);
  await attack("embeds nothing", where, embedsNothing);
  await attack("speaks no socket", where, speaksNoSocket);
}
// A page without an origin: "null".
const sandboxed = `http://127.0.0.1:${port}/frame`;
await attack("reads nothing", sandboxed, readsNothing, { inFrame: true });
await attack("posts nothing", sandboxed, postsNothing, { inFrame: true });
await attack("submits nothing", sandboxed, submitsNothing, { inFrame: true });

// The name points at the server itself: all requests are of the page's own origin.
const rebound = `http://evil.example:${ours.port}`;
await attack("a rebound name reads and posts nothing", `${rebound}/`, async (frame) => {
  for (const path of ["/", "/page.js", "/slots", "/state", "/v1/models", "/health"]) {
    assert.match(await read(frame, rebound + path), /^basic 421 .*--allowed-host/, path);
  }
  for (const headers of [text, json]) {
    const options = { method: "POST", body: prompt, headers };
    assert.match(await read(frame, `${rebound}/v1/completions`, options), /^basic 421 /);
  }
});

await check("the page cannot be framed", async () => {
  const page = await browser.newPage();
  await page.goto(`http://127.0.0.1:${port}/`);
  const said = page.waitForEvent("console", (line) => /frame-ancestors/.test(line.text()));
  await page.evaluate((url) => {
    document.body.append(Object.assign(document.createElement("iframe"), { src: url }));
  }, `${base}/`);
  await said;
  await page.close();
});

await check("a link leads to the page", async () => {
  const page = await browser.newPage();
  await page.goto(`http://evil.example:${port}/`);
  const there = page.waitForURL(`${base}/`);
  await page.evaluate((url) => { location.href = url; }, `${base}/`);
  await there;
  await page.locator("#status.good").waitFor({ timeout: 30000 });
  await page.close();
});

await check("a listed page reads and posts", async () => {
  const page = await browser.newPage();
  await page.goto("http://friend.example/");
  assert.match(await read(page, `${base}/v1/models`), /^cors 200 .*"object":"list"/);
  const headers = { ...json, Authorization: "Bearer any", "x-stainless-lang": "js" };
  const options = { method: "POST", body: prompt, headers };
  assert.match(await read(page, `${base}/v1/completions`, options), /^cors 200 .*"usage"/);
  // Errors can be read, too: of the routes, of a body, of the connection's layer.
  assert.match(await read(page, `${base}/absent`), /^cors 404 /);
  assert.match(await read(page, `${base}/v1/completions`, { method: "POST", body: "{", headers }),
               /^cors 400 .*error/);
  const long = { method: "POST", body: "x".repeat((32 << 20) + 1), headers };
  assert.match(await read(page, `${base}/v1/completions`, long), /^cors 413 .*error/);
  await page.close();
});

await browser.close();
pages.close();
finish("pages of other sites");
