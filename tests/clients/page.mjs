// SPDX-License-Identifier: MIT
// The dashboard in a browser, against a running server:
//
//   moestro serve --port 8080 &
//   npm install --prefix tests/clients
//   node tests/clients/page.mjs http://127.0.0.1:8080 SCREENSHOT-FOLDER
//
// Prints a line for each check; exit status 1 if one failed. The browser is CHROMIUM, or Debian's.
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

const patience = 60000;  // ms for an answer
const [base, folder] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core"), "utf8");
const deed = "window.injected = 1";
const markup = `<img src="/nowhere" onerror="${deed}"><script>${deed}</script>`;
let failures = 0;

function check(name, isGood, details = "") {
  console.log(isGood ? `ok   ${name}` : `FAIL ${name}: ${details}`);
  if (!isGood) ++failures;
}

// What a step throws is a failed check, and the next steps are tried all the same.
async function step(name, work) {
  try {
    await work();
  } catch (error) {
    check(name, false, error.message.split("\n")[0]);
  }
}

// A page, and what went wrong in it: words of the console, errors, requests to anybody else.
async function open(browser, options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const faults = [];
  page.on("console", (said) => {
    if (["error", "warning"].includes(said.type())) faults.push(`console: ${said.text()}`);
  });
  page.on("pageerror", (error) => faults.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => {
    faults.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(`${new URL(base).origin}/`) && !url.startsWith("data:")) {
      faults.push(`request: ${url}`);
    }
  });
  await page.goto(base);
  await page.locator("#status.good").waitFor({ timeout: patience });
  return { context, page, faults };
}

async function accessible(page, name) {
  // Into the page's world through the debugger, which the policy of the page does not bind.
  if (!(await page.evaluate(() => "axe" in window))) {
    await page.evaluate(axe);
  }
  const { violations } = await page.evaluate(() => window.axe.run());
  const grave = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  const said = ({ id, impact, nodes }) =>
    `${impact} ${id} at ${nodes.map((n) => n.target).join(", ")}`;
  check(`accessible: ${name}`, grave.length === 0, grave.map(said).join("; "));
  const mild = violations.filter((violation) => !grave.includes(violation));
  for (const violation of mild) console.log(`     ${said(violation)}`);
}

const picture = (page, name) =>
  page.screenshot({ path: join(folder, `${name}.png`), fullPage: true });
const lastNote = (page) => page.locator("#messages > li:last-child > p.muted");

const setField = (page, id, value) =>
  page.locator(`#${id}`).evaluate((field, text) => { field.value = text; }, value);

// The conversation has `count` entries, and the last of them is complete. An answer that failed
// takes its question away with it; then this fails, with the page's words for why.
async function ended(page, count) {
  try {
    const last = page.locator(`#messages > li:nth-child(${count}):not([aria-busy])`);
    await last.waitFor({ timeout: patience });
  } catch (error) {
    throw new Error((await page.textContent("#chat-error")) || error.message);
  }
}

async function checkAnswer(page) {
  await setField(page, "max_tokens", "200");
  await setField(page, "seed", "1");
  await page.locator("#message").focus();
  await page.keyboard.type("Tell me a story");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type(markup);
  await page.keyboard.press("Enter");
  await accessible(page, "light, while an answer is written");
  await ended(page, 2);
  const question = await page.locator("#messages > li:first-child .text").textContent();
  check("a question stands as it was typed", question === `Tell me a story\n${markup}`, question);
  const answer = await page.locator("#messages > li:last-child > .text").textContent();
  check("an answer is written", answer.trim() !== "");
  const note = await lastNote(page).textContent();
  check("an answer says how it ended", /^(finished|cut)/.test(note), note);
  check("an answer says how fast it was", /tok\/s/.test(note), note);
  check("an answer says what was cached", /from the cache/.test(note), note);
  const announced = await page.locator("#announce").textContent();
  check("the finished answer is read out", announced === answer, announced);
  const isNext = await page.evaluate(() => document.activeElement.id === "message");
  check("focus is where the next message goes", isNext);
  await accessible(page, "light, with an answer");
  // A dialog opens and a picture fails to load later than its markup is read.
  await page.waitForTimeout(500);
  check("markup in a message does not run", await page.evaluate(() => !("injected" in window)));
  const elements = await page.locator("#messages img, #messages script").count();
  check("markup in a message makes no elements", elements === 0, `${elements} elements`);
}

// However fast the model is: the page stops it itself as soon as there is something to read.
async function checkStop(page) {
  const count = await page.locator("#messages > li").count();
  await setField(page, "max_tokens", "");
  await page.fill("#message", "Tell me a very long and slow story");
  await page.evaluate(() => {
    const list = document.getElementById("messages");
    const last = () => list.lastElementChild?.querySelector(":scope[aria-busy] > .text");
    new MutationObserver((_, observer) => {
      if (!/\S/.test(last()?.textContent ?? "")) return;
      observer.disconnect();
      window.focusThen = document.activeElement.id;
      document.activeElement.click();
    }).observe(list, { childList: true, subtree: true, characterData: true });
  });
  await page.click("#send");
  await ended(page, count + 2);
  const focus = await page.evaluate(() => window.focusThen);
  check("the button to stop takes the focus of the one to send", focus === "stop", focus);
  const note = await lastNote(page).textContent();
  check("an answer can be stopped", note.startsWith("stopped"), note);
  const text = await page.locator("#messages > li:last-child > .text").textContent();
  check("what was written stays", text.trim() !== "");
  const isNext = await page.evaluate(() => document.activeElement.id === "message");
  check("focus is at the next message after a stop", isNext);
}

async function checkState(page) {
  const ids = ["model", "context", "decode-rate", "prefill-rate", "bound-note", "hits-note",
               "disk-rate", "disk-note", "memory", "memory-note", "kv", "kv-note", "queue",
               "map-note", "finished", "cancelled", "failed", "generated", "prompt-tokens",
               "cached-tokens", "kept", "saved"];
  for (const id of ids) {
    const text = await page.locator(`#${id}`).textContent();
    const isBare = /^(\s*|–)$|no model yet|NaN|∞|undefined|null/.test(text);
    check(`the live state has ${id}`, !isBare, text);
  }
  check("tokens are counted", (await page.locator("#generated").textContent()) !== "0");
  const isDrawn = await page.locator("#map").evaluate((map) => {
    const { data } = map.getContext("2d").getImageData(0, 0, map.width, map.height);
    return data.some((value) => value !== 0);
  });
  check("the map of the experts is drawn", isDrawn);
  await page.click("#layers > summary");
  await page.locator("#layer-rows > tr").first().waitFor({ timeout: 5000 });
  check("the layers have a table", (await page.locator("#layer-rows td").count()) > 0);
}

async function checkKeyboard(page) {
  await page.reload();
  await page.locator("#status.good").waitFor();
  const seen = [];
  for (let i = 0; i < 40; ++i) {
    await page.keyboard.press("Tab");
    const stop = await page.evaluate(() => {
      const { activeElement: e } = document;
      const { outlineStyle, outlineWidth } = getComputedStyle(e);
      return { name: e.id || e.textContent.trim().slice(0, 20), isBody: e === document.body,
               isSeen: outlineStyle !== "none" && parseFloat(outlineWidth) >= 2 };
    });
    if (stop.isBody) break;
    seen.push(stop);
  }
  const names = seen.map(({ name }) => name);
  const hidden = seen.filter(({ isSeen }) => !isSeen).map(({ name }) => name);
  check("every stop of the keyboard shows its focus", hidden.length === 0, hidden.join(", "));
  const order = ["Skip to the message", "theme", "new-chat", "log", "message", "send"];
  const places = order.map((name) => names.findIndex((n) => n.startsWith(name)));
  check("the keyboard goes through the page in its order",
        places.every((at, i) => at >= 0 && (i === 0 || at > places[i - 1])), names.join(", "));
  check("the keyboard finds the way out", seen.length < 40);
}

async function checkLight(browser) {
  const { context, page, faults } = await open(browser,
    { colorScheme: "light", viewport: { width: 1280, height: 900 } });
  await accessible(page, "light, at the start");
  check("one model leaves nothing to choose", await page.locator("#choice").isHidden());
  await step("an answer", () => checkAnswer(page));
  await step("stopping", () => checkStop(page));
  await page.waitForTimeout(2500);
  await step("the live state", () => checkState(page));
  await picture(page, "light");
  await step("the keyboard", () => checkKeyboard(page));
  await page.click("#theme");
  check("the theme can be chosen", await page.evaluate(() =>
    getComputedStyle(document.documentElement).colorScheme === "dark"));
  await page.reload();
  check("the theme is remembered", await page.evaluate(() =>
    getComputedStyle(document.documentElement).colorScheme === "dark"));
  check("nothing went wrong, light", faults.length === 0, faults.join("; "));
  await context.close();
}

// In another theme or on a phone: an answer, the pages as they look, no scrolling sideways.
async function checkLook(browser, name, options) {
  const { context, page, faults } = await open(browser, options);
  await setField(page, "max_tokens", "100");
  await setField(page, "seed", "1");
  await page.fill("#message", markup);
  await page.click("#send");
  await accessible(page, `${name}, while an answer is written`);
  await ended(page, 2);
  await page.click("#settings > summary");
  await page.waitForTimeout(1500);
  await accessible(page, `${name}, with an answer`);
  await picture(page, name);
  const [wide, room] = await page.evaluate(() =>
    [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
  check(`no scrolling sideways, ${name}`, wide <= room, `${wide} pixels in ${room}`);
  check(`markup does not run, ${name}`, await page.evaluate(() => !("injected" in window)));
  check(`nothing went wrong, ${name}`, faults.length === 0, faults.join("; "));
  await context.close();
}

if (base === undefined || folder === undefined) {
  console.error("usage: node page.mjs BASE-URL SCREENSHOT-FOLDER");
  process.exit(2);
}
mkdirSync(folder, { recursive: true });
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: process.getuid() === 0 ? ["--no-sandbox"] : [],
});
const phone = { viewport: { width: 320, height: 640 }, deviceScaleFactor: 2, hasTouch: true };
await step("light", () => checkLight(browser));
await step("dark", () => checkLook(browser, "dark",
  { colorScheme: "dark", viewport: { width: 1280, height: 900 } }));
await step("phone", () => checkLook(browser, "phone",
  { colorScheme: "light", reducedMotion: "reduce", ...phone }));
await browser.close();
console.log(failures === 0 ? "the page is well" : `${failures} checks failed`);
process.exit(failures === 0 ? 0 : 1);
