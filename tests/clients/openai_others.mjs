// SPDX-License-Identifier: MIT
// OpenAI's client against a running server: texts that go on, the Responses form, and clients that
// leave.
//
//   node openai_others.mjs http://127.0.0.1:8080
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { baseFromArguments, check, collect, finish, longPrompt, rejection, sleep,
         waitForSlots } from "./checks.mjs";

const base = baseFromArguments("openai_others.mjs");
const client = new OpenAI({ apiKey: "any", baseURL: `${base}/v1`, maxRetries: 0 });
const model = "any";
const goOn = { model, prompt: "Once upon a time", max_tokens: 16, temperature: 0 };
const asked = { model, input: "Tell me a story", max_output_tokens: 16, temperature: 0 };

const complete = (body) => client.completions.create(body);
const respond = (body) => client.responses.create(body);
const firstText = ({ choices: [{ text }] }) => text;

async function tokensOf(content) {
  const body = JSON.stringify({ content, add_special: true });
  const { tokens } = await (await fetch(`${base}/tokenize`, { method: "POST", body })).json();
  return tokens;
}

await check("a text goes on", async () => {
  const answer = await complete(goOn);
  assert.equal(answer.object, "text_completion");
  assert.equal(answer.choices[0].finish_reason, "length");
  assert.equal(answer.usage.completion_tokens, 16);
  assert.ok(firstText(answer).length > 0);
});

await check("a stream of a text says the same", async () => {
  const chunks = await collect(await complete({ ...goOn, stream: true }));
  const text = chunks.map((chunk) => chunk.choices[0]?.text ?? "").join("");
  assert.equal(text, firstText(await complete(goOn)));
  assert.equal(chunks.filter((chunk) => chunk.choices[0]?.finish_reason).length, 1);
});

await check("tokens go on as their text does", async () => {
  const answer = await complete({ ...goOn, prompt: await tokensOf(goOn.prompt) });
  assert.equal(firstText(answer), firstText(await complete(goOn)));
});

await check("several texts each go on, as alone", async () => {
  const prompt = ["Once upon a time", "The cat", "In the morning"];
  const { choices } = await complete({ ...goOn, prompt });
  assert.deepEqual(choices.map(({ index }) => index), [0, 1, 2]);
  for (const [i, { text }] of choices.entries()) {
    assert.equal(text, firstText(await complete({ ...goOn, prompt: prompt[i] })));
  }
});

await check("several texts in one stream", async () => {
  const prompt = ["Once upon a time", "The cat"];
  const chunks = await collect(await complete({ ...goOn, prompt, stream: true }));
  const texts = ["", ""];
  for (const { choices } of chunks) for (const { index, text } of choices) texts[index] += text;
  const { choices } = await complete({ ...goOn, prompt });
  assert.deepEqual(texts, choices.map(({ text }) => text));
});

await check("echo puts the prompt before the text", async () => {
  const text = firstText(await complete({ ...goOn, echo: true }));
  assert.equal(text, goOn.prompt + firstText(await complete(goOn)));
});

await check("log-probabilities of a text: four arrays of one length", async () => {
  const { choices: [{ text, logprobs }] } = await complete({ ...goOn, logprobs: 2 });
  const { tokens, token_logprobs: each, top_logprobs: top, text_offset: offsets } = logprobs;
  assert.equal(tokens.join(""), text);
  assert.deepEqual([tokens.length, each.length, top.length, offsets.length], [16, 16, 16, 16]);
  for (const [i, token] of tokens.entries()) {
    assert.ok(Object.keys(top[i]).length <= 3);
    assert.ok(Math.abs(top[i][token] - each[i]) < 1e-6);
    assert.ok(i === 0 || offsets[i] === offsets[i - 1] + tokens[i - 1].length);
  }
});

await check("stop and grammar hold for texts, too", async () => {
  const whole = firstText(await complete(goOn));
  const stop = whole.slice(5, 8);
  const stopped = await complete({ ...goOn, stop });
  assert.equal(firstText(stopped), whole.slice(0, whole.indexOf(stop)));
  assert.equal(stopped.choices[0].finish_reason, "stop");
  const answer = await complete({ ...goOn, grammar: 'root ::= "a" [b-d]+ "e"', max_tokens: 40,
                                  logit_bias: {} });
  assert.match(firstText(answer), /^a[b-d]*e?$/);
});

await check("a response", async () => {
  const answer = await respond(asked);
  assert.equal(answer.object, "response");
  assert.match(answer.id, /^resp_/);
  assert.ok(answer.output_text.length > 0);
  assert.equal(answer.status, "incomplete");
  assert.equal(answer.incomplete_details.reason, "max_output_tokens");
  assert.equal(answer.usage.output_tokens, 16);
});

await check("a response's events are in order and end complete", async () => {
  const events = await collect(await respond({ ...asked, stream: true }));
  assert.deepEqual(events.map((event) => event.sequence_number), events.map((_, i) => i));
  assert.equal(events[0].type, "response.created");
  assert.equal(events.at(-1).type, "response.incomplete");
  const text = events.filter(({ type }) => type === "response.output_text.delta")
    .map(({ delta }) => delta).join("");
  assert.equal(text, (await respond(asked)).output_text);
  assert.equal(events.find(({ type }) => type === "response.output_text.done").text, text);
});

await check("the client's own reader of responses is content", async () => {
  const answer = await client.responses.stream(asked).finalResponse();
  assert.equal(answer.output_text, (await respond(asked)).output_text);
});

const parameters = { type: "object", properties: { city: { enum: ["Rome", "Oslo"] } },
                     required: ["city"], additionalProperties: false };
const weather = { type: "function", name: "weather", parameters, strict: true };
const withTool = { ...asked, tools: [weather], tool_choice: "required", max_output_tokens: 400,
                   parallel_tool_calls: false };

await check("a function call in a response, and its result", async () => {
  const answer = await respond(withTool);
  const [call] = answer.output.filter(({ type }) => type === "function_call");
  assert.equal(call.name, "weather");
  assert.ok(["Rome", "Oslo"].includes(JSON.parse(call.arguments).city));
  assert.equal(answer.status, "completed");
  const input = [{ role: "user", content: "Tell me a story" }, ...answer.output,
                 { type: "function_call_output", call_id: call.call_id, output: "sunny" }];
  const next = await respond({ ...asked, tools: [weather], tool_choice: "none", input });
  assert.ok(next.output_text.length > 0);
});

await check("a function call in a response's stream", async () => {
  const stream = client.responses.stream(withTool);
  let text = "";
  stream.on("response.function_call_arguments.delta", ({ delta }) => { text += delta; });
  const answer = await stream.finalResponse();
  const [call] = answer.output;
  assert.equal(call.arguments, text);
  assert.ok(["Rome", "Oslo"].includes(call.parsed_arguments.city));
});

await check("input items, instructions and a form", async () => {
  const Answer = z.object({ mood: z.enum(["good", "bad"]), score: z.int().min(0).max(10) });
  const answer = await client.responses.parse({
    ...asked, max_output_tokens: 200, instructions: "Be kind.",
    input: [{ role: "developer", content: "Judge." },
            { role: "user", content: [{ type: "input_text", text: "A cat." }] }],
    text: { format: zodTextFormat(Answer, "answer") },
  });
  Answer.parse(answer.output_parsed);
});

await check("a response goes on from a stored one, which is found and deleted", async () => {
  const first = await respond(asked);
  assert.equal(first.store, true);
  const again = await client.responses.retrieve(first.id);
  assert.deepEqual([again.output, again.usage, again.status],
                   [first.output, first.usage, first.status]);
  const next = await respond({ ...asked, input: "And then?", previous_response_id: first.id });
  assert.equal(next.previous_response_id, first.id);
  const whole = await respond({ ...asked, store: false, input: [
    { role: "user", content: asked.input }, ...first.output,
    { role: "user", content: "And then?" }] });
  assert.equal(next.output_text, whole.output_text);
  assert.equal(next.usage.input_tokens, whole.usage.input_tokens);
  await client.responses.delete(first.id);
  assert.equal((await rejection(client.responses.retrieve(first.id))).status, 404);
  assert.equal((await rejection(client.responses.delete(first.id))).status, 404);
});

await check("a response cannot go on from one that was not kept", async () => {
  const error = await rejection(respond({ ...asked, previous_response_id: "resp_1" }));
  assert.equal(error.status, 400);
  assert.equal(error.param, "previous_response_id");
  assert.equal(error.code, "previous_response_not_found");
});

await check("embeddings are not offered, and that is said", async () => {
  const error = await rejection(client.embeddings.create({ model, input: "text" }));
  assert.equal(error.status, 501);
  assert.match(error.message, /embeddings/);
});

const endless = (count, seed) => ({ ...goOn, prompt: longPrompt(count, seed), max_tokens: 4000,
                                    temperature: 1, seed, ignore_eos: true });

await check("a client that leaves in the middle of a stream frees its slot within a second",
            async () => {
  for (let i = 0; i < 3; ++i) {
    const stream = await complete({ ...endless(20, i), stream: true });
    for await (const chunk of stream) {
      assert.ok(chunk.choices.length > 0);
      await waitForSlots(base, (busy) => busy > 0, 1000);
      break;  // and the client closes the connection
    }
    await waitForSlots(base, (busy) => busy === 0, 1000);
  }
});

await check("a client that leaves in the middle of a prompt frees its slot within a second",
            async () => {
  for (let i = 0; i < 5; ++i) {
    const leave = new AbortController();
    const isStream = i % 2 === 0;
    // The client ends a stream that it leaves without an error.
    const answer = client.completions
      .create({ ...endless(9000, 100 + i), stream: isStream }, { signal: leave.signal })
      .then((got) => (isStream ? collect(got) : got), (error) => error);
    await waitForSlots(base, (busy) => busy > 0, 5000);
    await sleep(200 * i);
    leave.abort();
    const got = await answer;
    assert.ok(got instanceof OpenAI.APIUserAbortError || (isStream && got.length === 0),
              JSON.stringify(got));
    await waitForSlots(base, (busy) => busy === 0, 1000);
  }
});

await check("who leaves several answers behind frees all of their places", async () => {
  const leave = new AbortController();
  const left = rejection(
    client.completions.create({ ...endless(200, 7), n: 9 }, { signal: leave.signal }));
  await waitForSlots(base, (count) => count > 1, 5000);
  leave.abort();
  await left;
  await waitForSlots(base, (count) => count === 0, 2000);
});

await check("health, models and refusals do not wait for the engine", async () => {
  const leave = new AbortController();
  const busy = [1, 2, 3].map((seed) =>
    rejection(client.completions.create(endless(6000, seed), { signal: leave.signal })));
  await waitForSlots(base, (count) => count > 0, 5000);
  for (const ask of [() => fetch(`${base}/health`), () => client.models.list(),
                     () => rejection(complete({ ...goOn, n: 129 }))]) {
    const start = performance.now();
    await ask();
    const took = performance.now() - start;
    assert.ok(took < 1000, `${took} ms`);
  }
  leave.abort();
  await Promise.all(busy);
  await waitForSlots(base, (count) => count === 0, 1000);
});

finish("openai: texts, responses, leaving");
