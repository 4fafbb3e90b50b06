// SPDX-License-Identifier: MIT
// Anthropic's client against a running server.
//
//   node anthropic.mjs http://127.0.0.1:8080
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { baseFromArguments, check, collect, finish, rejection, waitForSlots } from "./checks.mjs";

const baseURL = baseFromArguments("anthropic.mjs");
const client = new Anthropic({ apiKey: "any", baseURL, maxRetries: 0 });
const greedy = { model: "any", max_tokens: 24, temperature: 0,
                 messages: [{ role: "user", content: "Tell me a story" }] };

const create = (body) => client.messages.create(body);
const textOf = ({ content }) => content.filter(({ type }) => type === "text")
  .map(({ text }) => text).join("");

await check("a message", async () => {
  const message = await create(greedy);
  assert.equal(message.type, "message");
  assert.equal(message.role, "assistant");
  assert.match(message.id, /^msg_/);
  assert.equal(message.stop_reason, "max_tokens");
  assert.equal(message.stop_sequence, null);
  assert.equal(message.usage.output_tokens, 24);
  assert.ok(textOf(message).length > 0);
});

await check("the client's own reader of streams puts together the same", async () => {
  const stream = client.messages.stream(greedy);
  let text = "";
  stream.on("text", (delta) => { text += delta; });
  const message = await stream.finalMessage();
  assert.equal(textOf(message), text);
  assert.equal(text, textOf(await create(greedy)));
  assert.equal(message.stop_reason, "max_tokens");
  assert.equal(message.usage.output_tokens, 24);
  assert.ok(message.usage.input_tokens > 0);
});

await check("a stream's events are in order", async () => {
  const events = await collect(await create({ ...greedy, stream: true }));
  const types = events.map(({ type }) => type).filter((type) => type !== "ping");
  const inner = types.slice(2, -3);
  assert.deepEqual([...types.slice(0, 2), ...types.slice(-3)],
    ["message_start", "content_block_start", "content_block_stop", "message_delta",
     "message_stop"]);
  assert.ok(inner.length > 0 && inner.every((type) => type === "content_block_delta"));
});

await check("system words, and content in blocks", async () => {
  const counted = async (body) => (await create(body)).usage;
  const all = ({ input_tokens: fresh, cache_read_input_tokens: read,
                 cache_creation_input_tokens: made }) => fresh + (read ?? 0) + (made ?? 0);
  const plain = await counted(greedy);
  for (const system of ["Be kind.", [{ type: "text", text: "Be kind.",
                                       cache_control: { type: "ephemeral" } }]]) {
    assert.ok(all(await counted({ ...greedy, system })) > all(plain));
  }
  const messages = [{ role: "user", content: [{ type: "text", text: "Tell me a story" }] }];
  assert.equal(textOf(await create({ ...greedy, messages })), textOf(await create(greedy)));
});

await check("a stop sequence is named", async () => {
  const whole = textOf(await create(greedy));
  const stop = whole.slice(8, 11);
  const message = await create({ ...greedy, stop_sequences: ["never in it", stop] });
  assert.equal(message.stop_reason, "stop_sequence");
  assert.equal(message.stop_sequence, stop);
  assert.equal(textOf(message), whole.slice(0, whole.indexOf(stop)));
  const streamed = await client.messages.stream({ ...greedy, stop_sequences: [stop] })
    .finalMessage();
  assert.equal(streamed.stop_sequence, stop);
  assert.equal(textOf(streamed), textOf(message));
});

const weather = {
  name: "weather", description: "Today's",
  input_schema: { type: "object", properties: { city: { enum: ["Rome", "Köln"] } },
                  required: ["city"], additionalProperties: false },
};
const withTool = { ...greedy, max_tokens: 300, tools: [weather],
                   tool_choice: { type: "any", disable_parallel_tool_use: true } };
const usesOf = ({ content }) => content.filter(({ type }) => type === "tool_use");
const isCity = ({ city }) => ["Rome", "Köln"].includes(city);

await check("a tool is used, and its result goes back", async () => {
  const message = await create(withTool);
  assert.equal(message.stop_reason, "tool_use");
  const [use, ...others] = usesOf(message);
  assert.equal(others.length, 0);
  assert.match(use.id, /^[\w-]+$/);
  assert.ok(isCity(use.input));
  const result = { type: "tool_result", tool_use_id: use.id,
                   content: [{ type: "text", text: "sunny" }] };
  const messages = [...greedy.messages, { role: "assistant", content: message.content },
                    { role: "user", content: [result] }];
  const next = await create({ ...greedy, tools: [weather], tool_choice: { type: "none" },
                              messages });
  assert.ok(textOf(next).length > 0);
});

await check("a tool is used in a stream", async () => {
  const stream = client.messages.stream({ ...withTool,
                                          tool_choice: { type: "tool", name: "weather" } });
  let json = "";
  stream.on("inputJson", (delta) => { json += delta; });
  const message = await stream.finalMessage();
  assert.equal(message.stop_reason, "tool_use");
  const [use, ...others] = usesOf(message);
  assert.equal(others.length, 0);
  assert.ok(isCity(use.input));
  assert.deepEqual(JSON.parse(json), use.input);
});

await check("tokens are counted without an answer", async () => {
  const { messages, model } = greedy;
  const { input_tokens: counted } = await client.messages.countTokens({ messages, model });
  const { input_tokens: more } =
    await client.messages.countTokens({ messages, model, tools: [weather], system: "Be kind." });
  assert.ok(counted > 0 && more > counted);
});

await check("errors have Anthropic's form", async () => {
  const error = await rejection(create({ ...greedy, max_tokens: "many" }));
  assert.ok(error instanceof Anthropic.BadRequestError, String(error));
  assert.equal(error.error.type, "error");
  assert.equal(error.error.error.type, "invalid_request_error");
  assert.match(error.error.error.message, /max_tokens/);
  for (const body of [{ ...greedy, max_tokens: undefined }, { ...greedy, messages: [] },
                      { ...greedy, messages: [{ role: "system", content: 5 }] }]) {
    assert.equal((await rejection(create(body))).status, 400);
  }
  const long = { ...greedy, messages: [{ role: "user", content: "one two ".repeat(20000) }] };
  const tooLong = await rejection(create(long));
  assert.equal(tooLong.status, 400);
  assert.match(tooLong.error.error.message, /prompt is too long: \d+ tokens > \d+ maximum/);
});

await check("the models are listed", async () => {
  const listed = await collect(client.models.list());
  assert.equal(listed.length, 1);
  assert.ok(listed[0].id.length > 0);
});

await check("a client that leaves frees its slot within a second", async () => {
  const stream = client.messages.stream({ ...greedy, max_tokens: 4000, temperature: 1 });
  await new Promise((begun) => stream.once("text", begun));
  stream.abort();
  await rejection(stream.done());
  await waitForSlots(baseURL, (busy) => busy === 0, 1000);
});

finish("anthropic");
