// SPDX-License-Identifier: MIT
// A running server beside llama-server with the same model: the same greedy texts, and chunks of
// the same form.
//
//   node llama_server.mjs http://127.0.0.1:8080 MODEL
//
// Both compute with ggml, but not in the same order, so log-probabilities differ a little. Where
// the two best tokens are nearly as good as each other the texts may part.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createServer } from "node:net";
import { baseFromArguments, check, finish, sleep } from "./checks.mjs";

const base = baseFromArguments("llama_server.mjs");
const model = process.argv[3];
const tie = 0.05;  // between the two best log-probabilities
const noise = 0.5;  // between the two servers' for the same token
const n_tokens = 48;

async function freePort() {
  const server = createServer();
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  const { port } = server.address();
  await new Promise((closed) => server.close(closed));
  return port;
}

async function startPeer() {
  const port = await freePort();
  const child = spawn("llama-server",
    ["-m", model, "--host", "127.0.0.1", "--port", port, "-t", "1", "-np", "1", "-c", "4096",
     "--jinja"], { stdio: "ignore" });
  const gone = new Promise((_, fail) => child.on("error", fail)
    .on("exit", (code) => fail(new Error(`llama-server ended with ${code}`))));
  gone.catch(() => {});
  const url = `http://127.0.0.1:${port}`;
  const ready = async () => {
    while (!(await fetch(`${url}/health`).catch(() => ({ ok: false }))).ok) await sleep(100);
  };
  await Promise.race([ready(), gone, sleep(60000).then(() => { throw new Error("no health"); })]);
  return { url, stop: () => child.kill() };
}

async function post(server, path, body) {
  const reply = await fetch(`${server}${path}`, { method: "POST", body: JSON.stringify(body) });
  const text = await reply.text();
  assert.equal(reply.status, 200, text);
  return body.stream ? text.split("\n\n").filter((event) => event.startsWith("data: {"))
    .map((event) => JSON.parse(event.slice("data: ".length))) : JSON.parse(text);
}

// One entry a token: its text, log-probability and that of the second best. llama-server gives
// texts that go on the log-probabilities of conversations.
function stepsOf({ choices: [{ logprobs }] }) {
  if (logprobs.content) {
    return logprobs.content.map(({ token, logprob, top_logprobs: [, second] }) =>
      ({ token, logprob, second: second.logprob }));
  }
  return logprobs.tokens.map((token, i) => {
    const [, second] = Object.values(logprobs.top_logprobs[i]).sort((a, b) => b - a);
    return { token, logprob: logprobs.token_logprobs[i], second };
  });
}

const textOf = ({ choices: [{ text, message }] }) => text ?? message.content;

// How many tokens were the same before a tie or the end; throws where the texts part for no reason.
function compare(ours, theirs) {
  const [a, b] = [stepsOf(ours), stepsOf(theirs)];
  // It counts the token that ends a text.
  if (theirs.choices[0].finish_reason === "stop") b.pop();
  for (const [i, step] of a.entries()) {
    if (i < b.length && step.token === b[i].token) {
      assert.ok(Math.abs(step.logprob - b[i].logprob) < noise,
                `token ${i}, ${JSON.stringify(step)}, ${JSON.stringify(b[i])}`);
      continue;
    }
    assert.ok(step.logprob - step.second < tie,
              `token ${i}: ${JSON.stringify(step)}, llama-server ${JSON.stringify(b[i])}`);
    return i;
  }
  assert.equal(b.length, a.length);
  assert.equal(textOf(ours), textOf(theirs));
  assert.equal(ours.choices[0].finish_reason, theirs.choices[0].finish_reason);
  assert.equal(ours.usage.prompt_tokens, theirs.usage.prompt_tokens);
  return a.length;
}

const beginnings = [
  "Once upon a time", "The little dog", "One day, Lily", "In the park there was", "Tom and Sue",
  "\"Hello,\" said the cat", "It was a sunny day and", "Mom said that", "The big red ball",
  "There was a boy named Tim", "A bird", "She was so happy because", "The old tree",
  "Ben had a toy car. He", "After lunch they", "The end.", "Why did the", "Ça va, 東京 😀",
];
const wishes = [
  "Tell me a story", "What is a dog?", "Hi", "Say something nice about cats.", "Why?",
  "Where does the bird live?",
];
const talks = wishes.flatMap((content) => [
  [{ role: "user", content }],
  [{ role: "system", content: "You tell stories." }, { role: "user", content: "Hello" },
   { role: "assistant", content: "Hello! How are you?" }, { role: "user", content }],
]);

const keysOf = (object) => Object.keys(object ?? {}).sort();

// What llama-server's clients find in it they find in ours.
function checkShape(ours, theirs, where) {
  const own = ["system_fingerprint", "timings", "prompt_per_token_ms", "predicted_per_token_ms"];
  for (const key of keysOf(theirs).filter((name) => !own.includes(name))) {
    assert.ok(key in ours, `${where}.${key} is missing`);
    const [a, b] = [ours[key], theirs[key]];
    const isEmpty = [a, b].some((value) => value === null || value === "");
    assert.ok(isEmpty || typeof a === typeof b, `${where}.${key}: ${a} for ${b}`);
    if (!isEmpty && typeof b === "object") checkShape(a, b, `${where}.${key}`);
  }
}

function kindOf({ choices: [choice] }) {
  if (choice === undefined) return "usage";
  if (choice.finish_reason) return "end";
  return choice.delta?.role ? "begin" : "text";
}

const peer = await startPeer();
let same = 0;
for (const [path, field, inputs, asks] of [
  ["/v1/completions", "prompt", beginnings, { logprobs: 2 }],
  ["/v1/chat/completions", "messages", talks, { logprobs: true, top_logprobs: 2 }],
]) {
  for (const input of inputs) {
    const body = { [field]: input, max_tokens: n_tokens, temperature: 0, ...asks };
    await check(`${path} ${JSON.stringify(input).slice(0, 60)}`, async () => {
      same += compare(await post(base, path, body), await post(peer.url, path, body));
    });
  }
  await check(`${path}: whole answers have the same form`, async () => {
    const body = { [field]: inputs[0], max_tokens: 4, temperature: 0 };
    checkShape(await post(base, path, body), await post(peer.url, path, body), "answer");
  });
  await check(`${path}: chunks have the same form and order`, async () => {
    const body = { [field]: inputs[0], max_tokens: 4, temperature: 0, stream: true,
                   stream_options: { include_usage: true } };
    const [ours, theirs] = [await post(base, path, body), await post(peer.url, path, body)];
    for (const { usage, ...chunk } of theirs) {
      // It puts the usage of texts into their last chunk, where OpenAI has a chunk for it.
      if (kindOf(chunk) === "usage") chunk.usage = usage;
      const like = ours.find((other) => kindOf(other) === kindOf(chunk));
      checkShape(like, chunk, `${kindOf(chunk)} chunk`);
    }
    const orderOf = (chunks) => chunks.map(kindOf).filter((kind) => kind !== "usage");
    assert.deepEqual(orderOf(ours), orderOf(theirs));
  });
}
peer.stop();
console.log(`     ${same} tokens were the same`);
finish("llama-server");
