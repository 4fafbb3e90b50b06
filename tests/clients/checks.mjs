// SPDX-License-Identifier: MIT
// What the clients' scripts share: named cases that run one after another, and a look at the server
// from beside a client.
import assert from "node:assert/strict";

let failures = 0;
let count = 0;

// A case that throws has failed, and the next ones are tried all the same.
export async function check(name, work) {
  ++count;
  const start = performance.now();
  try {
    await work();
    console.log(`ok   ${name} (${Math.round(performance.now() - start)} ms)`);
  } catch (error) {
    ++failures;
    console.log(`FAIL ${name}: ${error.stack ?? error}`);
  }
}

// The process' exit status says whether all was well.
export function finish(who) {
  console.log(failures === 0 ? `${who}: ${count} cases are well`
                             : `${who}: ${failures} of ${count} cases failed`);
  process.exit(failures === 0 ? 0 : 1);
}

export function baseFromArguments(script) {
  const [base] = process.argv.slice(2);
  if (base !== undefined) return base.replace(/\/$/, "");
  console.error(`usage: node ${script} BASE-URL`);
  process.exit(2);
}

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// How many slots compute, as the server itself says.
export async function busySlots(base) {
  const slots = await (await fetch(`${base}/slots`)).json();
  return slots.filter((slot) => slot.is_processing).length;
}

export async function waitForSlots(base, isWanted, patience) {
  const end = performance.now() + patience;
  let busy = await busySlots(base);
  while (!isWanted(busy) && performance.now() < end) {
    await sleep(10);
    busy = await busySlots(base);
  }
  assert.ok(isWanted(busy), `${busy} slots are busy after ${patience} ms`);
}

// About this many tokens of a prompt, another one for each seed: no prefix is kept for it.
export function longPrompt(count, seed) {
  const words = ["the", "a", "dog", "cat", "ran", "sat", "big", "old", "and", "so"];
  let state = seed + 1;
  const picked = Array.from({ length: count }, () => {
    state = (state * 48271) % 2147483647;
    return words[state % words.length];
  });
  return picked.join(" ");
}

export async function rejection(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new assert.AssertionError({ message: "expected an error, got an answer" });
}

export async function collect(stream) {
  const items = [];
  for await (const item of stream) items.push(item);
  return items;
}
