// SPDX-License-Identifier: MIT
// Ollama's own client against a running server.
//
//   node tests/clients/ollama.mjs http://127.0.0.1:8080
import assert from "node:assert/strict";
import { Ollama } from "ollama";
import { baseFromArguments, check, finish } from "./checks.mjs";

const base = baseFromArguments("ollama.mjs");
const ollama = new Ollama({ host: base });
const [{ name: model }] = (await ollama.list()).models;
const messages = [{ role: "user", content: "Tell me a story" }];
const options = { temperature: 0, seed: 1, num_predict: 12 };

async function failure(work) {
  try {
    await work();
  } catch (error) {
    return error;
  }
  throw new Error("it did not fail");
}

await check("the server is found as Ollama is", async () => {
  const head = await fetch(base, { method: "HEAD" });
  assert.equal(head.status, 200);
  assert.match((await ollama.version()).version, /^\d+\.\d+\.\d+$/);
});

await check("list, ps and show tell of the model", async () => {
  const { models: [listed] } = await ollama.list();
  assert.equal(listed.details.format, "gguf");
  assert(listed.size > 0 && !Number.isNaN(Date.parse(listed.modified_at)));
  const { models: [running] } = await ollama.ps();
  assert.equal(running.name, model);
  assert(running.context_length > 0);
  const shown = await ollama.show({ model });
  assert(shown.capabilities.includes("completion") && shown.capabilities.includes("tools"));
  const architecture = shown.model_info["general.architecture"];
  assert.equal(shown.model_info[`${architecture}.context_length`], running.context_length);
  assert(shown.template.length > 0);
});

await check("a stream says what a whole answer says", async () => {
  const whole = await ollama.chat({ model, messages, options });
  assert.equal(whole.message.role, "assistant");
  assert.equal(whole.eval_count, 12);
  assert.equal(whole.done_reason, "length");
  for (const key of ["total_duration", "prompt_eval_count", "prompt_eval_duration",
                     "eval_duration"]) assert(whole[key] > 0, key);
  let text = "";
  let last;
  for await (const part of await ollama.chat({ model, messages, options, stream: true })) {
    assert.equal(last?.done ?? false, false, "nothing comes after the end");
    text += part.message.content;
    last = part;
  }
  assert.equal(text, whole.message.content);
  assert.equal(last.done_reason, "length");
  assert.equal(last.eval_count, 12);
});

await check("the default is a stream of lines of JSON", async () => {
  const reply = await fetch(`${base}/api/chat`,
                            { method: "POST", body: JSON.stringify({ model, messages, options }) });
  assert.equal(reply.headers.get("content-type"), "application/x-ndjson");
  const lines = (await reply.text()).trimEnd().split("\n").map((line) => JSON.parse(line));
  assert(lines.length > 1);
  assert.deepEqual(lines.map(({ done }) => done), lines.map((_, i) => i === lines.length - 1));
});

await check("generate, with the template and without", async () => {
  const told = await ollama.generate({ model, prompt: "Tell me a story", options });
  const chat = await ollama.chat({ model, messages, options });
  assert.equal(told.response, chat.message.content);
  const raw = await ollama.generate({ model, prompt: "Once upon a time", raw: true, options });
  assert(raw.response.length > 0 && raw.prompt_eval_count < told.prompt_eval_count);
  let text = "";
  for await (const part of await ollama.generate(
    { model, prompt: "Once upon a time", raw: true, options, stream: true })) text += part.response;
  assert.equal(text, raw.response);
});

await check("answers of a form", async () => {
  const format = { type: "object", properties: { n: { type: "integer", maximum: 9, minimum: 0 } },
                   required: ["n"], additionalProperties: false };
  const { message } = await ollama.chat({ model, messages, format, options: { seed: 1 } });
  assert(Number.isInteger(JSON.parse(message.content).n), message.content);
});

await check("what would load the model says that it is there", async () => {
  assert.equal((await ollama.chat({ model })).done_reason, "load");
  assert.equal((await ollama.generate({ model, prompt: "" })).done_reason, "load");
});

await check("a call of a tool, and its result", async () => {
  const tools = [{ type: "function",
                   function: { name: "now", description: "the time",
                               parameters: { type: "object", properties: {} } } }];
  const asked = [...messages,
    { role: "assistant", content: "",
      tool_calls: [{ function: { name: "now", arguments: { zone: "UTC" } } }] },
    { role: "tool", tool_name: "now", content: "noon" }];
  const { message } = await ollama.chat({ model, messages: asked, tools, options });
  assert.equal(typeof message.content, "string");
});

await check("a context that is too large is refused with both numbers", async () => {
  const error = await failure(() => ollama.chat(
    { model, messages, options: { num_ctx: 1 << 30 } }));
  assert.equal(error.status_code, 400);
  assert.match(error.message, /1073741824/);
  await ollama.chat({ model, messages, options: { ...options, num_ctx: 16 } });
});

await check("errors are texts", async () => {
  for (const [work, status] of [
    [() => ollama.generate({ model, prompt: "a", suffix: "b" }), 400],
    [() => ollama.generate({ model, prompt: "a", images: ["aGk="] }), 400],
    [() => ollama.chat({ model, messages, options: { temperature: "hot" } }), 400],
    [() => ollama.embed({ model, input: "a" }), 501],
    [() => ollama.pull({ model }), 501],
    [() => ollama.delete({ model }), 501],
  ]) {
    const error = await failure(work);
    assert.equal(error.status_code, status, error.message);
    assert(error.message.length > 10 && !/object Object/.test(error.message), error.message);
  }
});

await check("a stream that is left ends in the server", async () => {
  const stream = await ollama.chat({ model, messages, stream: true });
  for await (const _ of stream) break;
  stream.abort();
});

finish("Ollama's client");
