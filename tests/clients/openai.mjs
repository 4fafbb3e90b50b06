// SPDX-License-Identifier: MIT
// OpenAI's client against a running server: conversations, sampling, refusals.
//
//   node openai.mjs http://127.0.0.1:8080
//
// The model need not make sense; what is looked at is the form of answers, and that equal requests
// get equal texts.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { baseFromArguments, check, collect, finish, rejection } from "./checks.mjs";

const base = baseFromArguments("openai.mjs");
let requests = 0;
const client = new OpenAI({
  apiKey: "any",
  baseURL: `${base}/v1`,
  fetch: (...call) => {
    ++requests;
    return fetch(...call);
  },
});
const model = "any";
const story = [{ role: "user", content: "Tell me a story" }];
const greedy = { model, messages: story, max_tokens: 24, temperature: 0 };

const create = (body) => client.chat.completions.create(body);
const textOf = (answer) => answer.choices[0].message.content;

// All chunks of a stream have one id, model and time; the first says the role, one says the reason.
function checkChunks(chunks) {
  const [first] = chunks;
  for (const chunk of chunks) {
    assert.equal(chunk.object, "chat.completion.chunk");
    assert.equal(chunk.id, first.id);
    assert.equal(chunk.created, first.created);
    assert.equal(chunk.model, first.model);
    for (const choice of chunk.choices) assert.equal(choice.index, 0);
  }
  assert.equal(first.choices[0].delta.role, "assistant");
  const said = chunks.filter((chunk) => chunk.choices[0]?.finish_reason);
  assert.equal(said.length, 1);
  return said[0].choices[0].finish_reason;
}

const streamText = (chunks) => chunks.map((c) => c.choices[0]?.delta.content ?? "").join("");

async function streamed(body) {
  const chunks = await collect(await create({ ...body, stream: true }));
  return { chunks, reason: checkChunks(chunks), text: streamText(chunks) };
}

await check("a plain answer", async () => {
  const answer = await create(greedy);
  assert.equal(answer.object, "chat.completion");
  assert.match(answer.id, /^chatcmpl-/);
  assert.ok(Math.abs(answer.created - Date.now() / 1000) < 60);
  const [choice] = answer.choices;
  assert.equal(choice.message.role, "assistant");
  assert.equal(choice.message.refusal, null);
  assert.ok(choice.message.content.length > 0);
  assert.equal(choice.finish_reason, "length");
  const { usage } = answer;
  assert.equal(usage.completion_tokens, 24);
  assert.ok(usage.prompt_tokens > 0);
  assert.equal(usage.total_tokens, usage.prompt_tokens + 24);
});

await check("a stream says the same as a plain answer", async () => {
  const { reason, text } = await streamed(greedy);
  assert.equal(reason, "length");
  assert.equal(text, textOf(await create(greedy)));
});

await check("a stream has usage only where it is asked for, in a chunk of its own", async () => {
  const without = await streamed(greedy);
  assert.ok(without.chunks.every((chunk) => !chunk.usage && chunk.choices.length === 1));
  const { chunks } = await streamed({ ...greedy, stream_options: { include_usage: true } });
  const last = chunks.at(-1);
  assert.deepEqual(last.choices, []);
  assert.equal(last.usage.completion_tokens, 24);
  assert.ok(chunks.slice(0, -1).every((chunk) => !chunk.usage));
});

await check("the client's own reader of streams is content", async () => {
  const stream = client.chat.completions.stream(greedy);
  let text = "";
  stream.on("content", (delta) => { text += delta; });
  const answer = await stream.finalChatCompletion();
  assert.equal(textOf(answer), text);
  assert.equal(text, textOf(await create(greedy)));
});

await check("raw events end with [DONE] and an empty line", async () => {
  const body = JSON.stringify({ ...greedy, stream: true });
  const reply = await fetch(`${base}/v1/chat/completions`, { method: "POST", body });
  assert.match(reply.headers.get("content-type"), /^text\/event-stream/);
  const events = (await reply.text()).split("\n\n");
  assert.equal(events.pop(), "");
  assert.equal(events.pop(), "data: [DONE]");
  const data = events.filter((event) => !event.startsWith(":"));
  for (const event of data) JSON.parse(event.replace(/^data: /, ""));
});

await check("system and developer speak before the user", async () => {
  for (const role of ["system", "developer"]) {
    const messages = [{ role, content: "Be kind." }, ...story];
    const answer = await create({ ...greedy, messages });
    const { usage } = await create(greedy);
    assert.ok(answer.usage.prompt_tokens > usage.prompt_tokens);
  }
});

await check("content may come in parts", async () => {
  const parts = [{ type: "text", text: "Tell me " }, { type: "text", text: "a story" }];
  const answer = await create({ ...greedy, messages: [{ role: "user", content: parts }] });
  assert.ok(textOf(answer).length > 0);
});

await check("a conversation goes on after a tool's result", async () => {
  const call = { id: "call_1", type: "function",
                 function: { name: "weather", arguments: '{"place":"Rome"}' } };
  const messages = [
    ...story,
    { role: "assistant", content: null, tool_calls: [call] },
    { role: "tool", tool_call_id: "call_1", content: "sunny" },
    { role: "assistant", content: "It is sunny." },
    { role: "user", content: "And now?" },
  ];
  const answer = await create({ ...greedy, messages });
  assert.ok(textOf(answer).length > 0);
});

await check("a stop string ends the text and is not part of it", async () => {
  const whole = textOf(await create(greedy));
  const stop = whole.slice(8, 11);
  const answer = await create({ ...greedy, stop });
  assert.equal(textOf(answer), whole.slice(0, whole.indexOf(stop)));
  assert.equal(answer.choices[0].finish_reason, "stop");
  const { text, reason } = await streamed({ ...greedy, stop });
  assert.equal(text, textOf(answer));
  assert.equal(reason, "stop");
});

await check("of several stop strings the first counts", async () => {
  const whole = textOf(await create(greedy));
  const stop = [whole.slice(12, 15), whole.slice(6, 9), "never in a text", "nor this"];
  const ends = stop.map((end) => whole.indexOf(end)).filter((at) => at >= 0);
  const answer = await create({ ...greedy, stop });
  assert.equal(textOf(answer), whole.slice(0, Math.min(...ends)));
});

await check("a seed gives the same text again, another seed another", async () => {
  const drawn = { ...greedy, temperature: 1, max_tokens: 40 };
  const first = textOf(await create({ ...drawn, seed: 7 }));
  assert.equal(textOf(await create({ ...drawn, seed: 7 })), first);
  const others = await Promise.all([8, 9, 10].map((seed) => create({ ...drawn, seed })));
  for (const other of others) assert.notEqual(textOf(other), first);
});

await check("without a seed texts differ", async () => {
  const drawn = { ...greedy, temperature: 1, max_tokens: 40 };
  assert.notEqual(textOf(await create(drawn)), textOf(await create(drawn)));
});

await check("eight requests beside each other each get their text alone", async () => {
  const asked = Array.from({ length: 8 }, (_, i) => ({
    ...greedy,
    max_tokens: 48,
    messages: [{ role: "user", content: `Tell me about ${i} ${"cats ".repeat(3 * i)}` }],
    ...(i % 2 === 0 ? {} : { temperature: 1, seed: i }),
  }));
  const alone = [];
  for (const body of asked) alone.push(textOf(await create(body)));
  const beside = await Promise.all(asked.map((body, i) =>
    i % 3 === 0 ? streamed(body).then(({ text }) => text) : create(body).then(textOf)));
  assert.deepEqual(beside, alone);
});

await check("log-probabilities: one entry a token, the best first", async () => {
  const answer = await create({ ...greedy, logprobs: true, top_logprobs: 3 });
  const { content } = answer.choices[0].logprobs;
  assert.equal(content.length, 24);
  for (const { token, logprob, bytes, top_logprobs: top } of content) {
    assert.equal(top.length, 3);
    assert.equal(top[0].token, token);
    assert.equal(top[0].logprob, logprob);
    assert.ok(top[0].logprob >= top[1].logprob && top[1].logprob >= top[2].logprob);
    assert.ok(logprob <= 0 && Array.isArray(bytes));
  }
  const written = Buffer.from(content.flatMap(({ bytes }) => bytes)).toString();
  assert.equal(written, textOf(answer));
});

await check("log-probabilities in a stream are those of the plain answer", async () => {
  const body = { ...greedy, logprobs: true, top_logprobs: 2 };
  const { chunks } = await streamed(body);
  const streamedOnes = chunks.flatMap((chunk) => chunk.choices[0]?.logprobs?.content ?? []);
  const plain = (await create(body)).choices[0].logprobs.content;
  assert.deepEqual(streamedOnes, plain);
});

await check("log-probabilities of an empty answer are an empty list", async () => {
  const answer = await create({ ...greedy, grammar: 'root ::= ""', logprobs: true });
  assert.equal(textOf(answer), "");
  assert.equal(answer.choices[0].finish_reason, "stop");
  assert.deepEqual(answer.choices[0].logprobs.content, []);
});

await check("one token at most: the reason is length", async () => {
  for (const limit of [{ max_tokens: 1 }, { max_tokens: undefined, max_completion_tokens: 1 }]) {
    const answer = await create({ ...greedy, ...limit });
    assert.equal(answer.usage.completion_tokens, 1);
    assert.equal(answer.choices[0].finish_reason, "length");
  }
});

await check("a biased token is what is written, a banned one is not", async () => {
  const answer = await create({ ...greedy, max_tokens: 1, logprobs: true, top_logprobs: 2 });
  const [{ token, top_logprobs: top }] = answer.choices[0].logprobs.content;
  const reply = await fetch(`${base}/tokenize`,
    { method: "POST", body: JSON.stringify({ content: token, add_special: false }) });
  const { tokens } = await reply.json();
  const banned = await create({ ...greedy, max_tokens: 1, logprobs: true,
                                logit_bias: { [tokens.at(-1)]: -100 } });
  assert.equal(banned.choices[0].logprobs.content[0].token, top[1].token);
  const forced = await create({ ...greedy, max_tokens: 3, logit_bias: { 300: 100 } });
  assert.match(textOf(forced), /^(.+)\1\1$/s);
});

await check("penalties change the text", async () => {
  const long = { ...greedy, max_tokens: 60 };
  const plain = textOf(await create(long));
  assert.notEqual(textOf(await create({ ...long, frequency_penalty: 2 })), plain);
  assert.notEqual(textOf(await create({ ...long, presence_penalty: 2 })), plain);
});

const seeded = { ...greedy, temperature: 1, max_tokens: 8, seed: 11 };

await check("several answers are those of the next seeds", async () => {
  const { choices, usage } = await create({ ...seeded, n: 5 });
  assert.deepEqual(choices.map(({ index }) => index), [0, 1, 2, 3, 4]);
  const alone = await Promise.all(
    choices.map(({ index }) => create({ ...seeded, seed: seeded.seed + index })));
  assert.deepEqual(choices.map(({ message }) => message.content), alone.map(textOf));
  assert.equal(usage.prompt_tokens, alone[0].usage.prompt_tokens);
  assert.equal(usage.completion_tokens,
               alone.reduce((sum, one) => sum + one.usage.completion_tokens, 0));
});

await check("several answers of a stream", async () => {
  const whole = await create({ ...seeded, n: 3 });
  const stream = await create({ ...seeded, n: 3, stream: true,
                                stream_options: { include_usage: true } });
  const texts = ["", "", ""];
  const reasons = [];
  let usage;
  for await (const chunk of stream) {
    usage = chunk.usage ?? usage;
    for (const { index, delta, finish_reason } of chunk.choices) {
      texts[index] += delta.content ?? "";
      if (finish_reason) reasons[index] = finish_reason;
    }
  }
  assert.deepEqual(texts, whole.choices.map(({ message }) => message.content));
  assert.deepEqual(reasons, whole.choices.map(({ finish_reason }) => finish_reason));
  assert.equal(usage.prompt_tokens, whole.usage.prompt_tokens);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
});

await check("too many answers are refused", async () => {
  const error = await rejection(create({ ...greedy, n: 129 }));
  assert.ok(error instanceof OpenAI.BadRequestError);
  assert.equal(error.param, "n");
  assert.match(error.message, /128/);
});

await check("a wrong type is refused and named", async () => {
  const wrong = {
    temperature: "hot", top_p: [], max_tokens: "many", stream: "yes", stop: 5, seed: "x",
    messages: "hello", tools: {}, logit_bias: [], response_format: "json", logprobs: 1,
    top_logprobs: 50, presence_penalty: 9,
  };
  for (const [param, value] of Object.entries(wrong)) {
    const error = await rejection(create({ ...greedy, logprobs: true, [param]: value }));
    assert.ok(error instanceof OpenAI.BadRequestError, `${param}: ${error}`);
    assert.equal(error.param, param);
    assert.equal(error.type, "invalid_request_error");
  }
});

await check("no messages, or none at all, are refused", async () => {
  for (const messages of [[], undefined]) {
    const error = await rejection(create({ ...greedy, messages }));
    assert.equal(error.status, 400);
    assert.equal(error.param, "messages");
  }
});

await check("unknown fields are ignored and any model name is taken", async () => {
  const answer = await create({ ...greedy, model: "gpt-99", store: true, metadata: { a: "b" },
                                user: "me", service_tier: "auto", no_such_field: [1] });
  assert.equal(textOf(answer), textOf(await create(greedy)));
});

await check("a prompt beyond the context is refused with both numbers", async () => {
  const [{ meta }] = (await client.models.list()).data;
  const content = "one two three ".repeat(meta.n_ctx);
  const error = await rejection(create({ ...greedy, messages: [{ role: "user", content }] }));
  assert.equal(error.status, 400);
  assert.equal(error.code, "context_length_exceeded");
  const numbers = error.message.match(/\d{4,}/g).map(Number).filter((n) => n >= meta.n_ctx);
  assert.ok(numbers.includes(meta.n_ctx), error.message);
  assert.ok(numbers.some((n) => n > meta.n_ctx), error.message);
});

await check("no error makes the client ask again", async () => {
  for (const [status, ask] of [
    [400, () => create({ ...greedy, n: 129 })],
    [404, () => client.get("/no/such/path")],
    [501, () => client.embeddings.create({ model, input: "text" })],
  ]) {
    requests = 0;
    const error = await rejection(ask());
    assert.equal(error.status, status);
    assert.equal(requests, 1, `${status} was asked ${requests} times`);
    assert.ok(error.message.length > 10);
  }
});

await check("the models are listed and found by name", async () => {
  const { data } = await client.models.list();
  assert.equal(data.length, 1);
  const [listed] = data;
  assert.equal(listed.object, "model");
  assert.ok(listed.meta.n_ctx > 0);
  assert.deepEqual(await client.models.retrieve(listed.id), listed);
  const error = await rejection(client.models.retrieve("no-such-model"));
  assert.equal(error.status, 404);
});

await check("a second request finds the first one's prompt", async () => {
  const content = `${Date.now()} ${"Once upon a time there was a cat. ".repeat(20)}`;
  const body = { ...greedy, messages: [{ role: "user", content }] };
  const cached = async () =>
    (await create(body)).usage.prompt_tokens_details.cached_tokens;
  assert.ok((await cached()) < 20);
  assert.ok((await cached()) > 100);
});

await check("the client counts a prompt without an answer", async () => {
  const { input_tokens: counted } =
    await client.post("/chat/completions/input_tokens", { body: greedy });
  const answer = await create(greedy);
  assert.equal(counted, answer.usage.prompt_tokens);
});

finish("openai");
