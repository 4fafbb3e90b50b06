// SPDX-License-Identifier: MIT
// The dashboard of a server of several models in a browser: the choice of the model that the chat
// goes to.
//
//   moestro serve --models one.gguf,two.gguf --port 8080 &
//   node tests/clients/house_page.mjs http://127.0.0.1:8080
//
// Prints a line for each check; exit status 1 if one failed. The browser is CHROMIUM, or Debian's.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";
import { baseFromArguments, check, finish } from "./checks.mjs";

const patience = 60000;  // ms for an answer
const base = baseFromArguments("house_page.mjs");
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core"), "utf8");
const models = async () => (await (await fetch(`${base}/v1/models`)).json()).data;
const isLoaded = async (id) => (await models()).find((model) => model.id === id).loaded;

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: process.getuid() === 0 ? ["--no-sandbox"] : [],
});
const page = await (await browser.newContext()).newPage();
const faults = [];
page.on("pageerror", (error) => faults.push(error.message));

async function ask(text) {
  const count = await page.locator("#messages > li").count();
  await page.locator("#max_tokens").evaluate((field) => { field.value = "8"; });
  await page.fill("#message", text);
  await page.click("#send");
  await page.locator(`#messages > li:nth-child(${count + 2}):not([aria-busy])`)
    .waitFor({ timeout: patience });
  return page.textContent(`#messages > li:nth-child(${count + 2}) > h3`);
}

await check("a server that has loaded nothing says so, and has a choice", async () => {
  await page.goto(base);
  await page.locator("#choice:not([hidden])").waitFor({ timeout: patience });
  const options = await page.locator("#choice option").evaluateAll((all) =>
    all.map((option) => option.value));
  assert.deepEqual(options.sort(), ["one", "two"]);
  await page.locator("#status", { hasText: "no model is loaded" }).waitFor({ timeout: patience });
});

await check("a question goes to the chosen model alone", async () => {
  await page.selectOption("#choice", "two");
  assert.equal(await ask("Tell me a story"), "two");
  assert.equal(await isLoaded("two"), true);
  assert.equal(await isLoaded("one"), false);
  await page.locator("#status.good").waitFor({ timeout: patience });
  await page.locator("#model", { hasText: "two" }).waitFor({ timeout: patience });
});

await check("a conversation goes on with another model", async () => {
  await page.selectOption("#choice", "one");
  assert.equal(await ask("And another one"), "one");
  assert.equal(await isLoaded("one"), true);
});

await check("the list says what is loaded, once somebody looks at it", async () => {
  await page.focus("#choice");
  await page.locator("#choice option", { hasText: "one · loaded" })
    .waitFor({ state: "attached", timeout: patience });
  assert.equal(await page.inputValue("#choice"), "one");
});

await check("the choice outlives a reload", async () => {
  await page.reload();
  await page.locator("#choice:not([hidden])").waitFor({ timeout: patience });
  assert.equal(await page.inputValue("#choice"), "one");
});

await check("the choice is accessible", async () => {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run("#choice"));
  assert.deepEqual(violations.map(({ id }) => id), []);
});

await check("nothing went wrong in the page", () => assert.deepEqual(faults, []));
await browser.close();
finish("the page of several models");
