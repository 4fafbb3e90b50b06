// SPDX-License-Identifier: MIT
// Vercel's AI SDK against a running server; it validates every answer and chunk itself.
//
//   node ai_sdk.mjs http://127.0.0.1:8080
import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, Output, embed, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { baseFromArguments, check, collect, finish, rejection } from "./checks.mjs";

const base = baseFromArguments("ai_sdk.mjs");
const provider = createOpenAICompatible({ name: "moestro", baseURL: `${base}/v1`, apiKey: "any",
                                          includeUsage: true, supportsStructuredOutputs: true });
const greedy = { model: provider("any"), prompt: "Tell me a story", maxOutputTokens: 20,
                 temperature: 0, maxRetries: 0 };

// All parts of a stream; a chunk that does not validate is one of type "error".
async function partsOf(options) {
  const parts = await collect(streamText({ ...options, onError: () => {} }).fullStream);
  const errors = parts.filter(({ type }) => type === "error");
  assert.deepEqual(errors, []);
  return parts;
}

const textOf = (parts) =>
  parts.filter(({ type }) => type === "text-delta").map(({ text }) => text).join("");

await check("a text", async () => {
  const { text, finishReason, usage } = await generateText(greedy);
  assert.ok(text.length > 0);
  assert.equal(finishReason, "length");
  assert.equal(usage.outputTokens, 20);
  assert.ok(usage.inputTokens > 0);
});

await check("a streamed text, with its usage", async () => {
  const parts = await partsOf(greedy);
  assert.equal(textOf(parts), (await generateText(greedy)).text);
  const end = parts.find(({ type }) => type === "finish");
  assert.equal(end.finishReason, "length");
  assert.equal(end.totalUsage.outputTokens, 20);
});

await check("system words, a conversation and stop strings", async () => {
  const { text } = await generateText(greedy);
  const messages = [{ role: "user", content: "Hello" }, { role: "assistant", content: "Hi" },
                    { role: "user", content: [{ type: "text", text: "Tell me a story" }] }];
  const { prompt, ...rest } = greedy;
  assert.equal(prompt, "Tell me a story");
  const answer = await generateText({ ...rest, system: "Be kind.", messages });
  assert.ok(answer.usage.inputTokens > 10);
  const stopped = await generateText({ ...greedy, stopSequences: [text.slice(6, 9)] });
  assert.equal(stopped.finishReason, "stop");
  assert.equal(stopped.text, text.slice(0, text.indexOf(text.slice(6, 9))));
});

await check("a seed gives the same text again", async () => {
  const drawn = { ...greedy, temperature: 1, seed: 5, topP: 0.9, maxOutputTokens: 40 };
  assert.equal((await generateText(drawn)).text, (await generateText(drawn)).text);
});

const inputSchema = z.object({ city: z.enum(["Rome", "Köln"]), days: z.int().min(1).max(9) });
const once = { providerOptions: { moestro: { parallel_tool_calls: false } },
               maxOutputTokens: 300 };

await check("a tool is called, run, and the model goes on", async () => {
  const seen = [];
  const weather = tool({ description: "Today's", inputSchema, execute: async (input) => {
    seen.push(inputSchema.parse(input));
    return "sunny";
  } });
  const { steps } = await generateText({ ...greedy, ...once, tools: { weather },
                                         toolChoice: "required", stopWhen: stepCountIs(2) });
  assert.equal(steps.length, 2);
  assert.ok(seen.length >= 2);
  assert.equal(steps[0].finishReason, "tool-calls");
});

await check("a tool is called in a stream", async () => {
  const weather = tool({ inputSchema });
  const parts = await partsOf({ ...greedy, ...once, tools: { weather },
                                toolChoice: { type: "tool", toolName: "weather" } });
  const calls = parts.filter(({ type }) => type === "tool-call");
  assert.equal(calls.length, 1);
  inputSchema.parse(calls[0].input);
  const text = parts.filter(({ type }) => type === "tool-input-delta")
    .map(({ delta }) => delta).join("");
  assert.deepEqual(JSON.parse(text), calls[0].input);
  assert.equal(parts.find(({ type }) => type === "finish").finishReason, "tool-calls");
});

const schema = z.object({ mood: z.enum(["good", "bad"]), tags: z.array(z.enum(["a", "b"])).max(3),
                          place: z.object({ city: z.enum(["Rome", "東京"]) }) });

await check("an object of a schema", async () => {
  const { output } = await generateText({ ...greedy, maxOutputTokens: 300,
                                          output: Output.object({ schema }) });
  schema.parse(output);
});

await check("a streamed object grows to one of the schema", async () => {
  const result = streamText({ ...greedy, maxOutputTokens: 300, output: Output.object({ schema }) });
  const grown = await collect(result.partialOutputStream);
  assert.ok(grown.length > 1);
  schema.parse(grown.at(-1));
});

await check("a text of the older endpoint", async () => {
  const model = provider.completionModel("any");
  const { text } = await generateText({ ...greedy, model, stopSequences: [] });
  assert.ok(text.length > 0);
  assert.equal(textOf(await partsOf({ ...greedy, model })), text);
});

await check("an error says what is wrong", async () => {
  const error = await rejection(generateText({ ...greedy, prompt: "one two ".repeat(20000) }));
  assert.ok(APICallError.isInstance(error), String(error));
  assert.equal(error.statusCode, 400);
  assert.match(error.message, /16384|context/);
  assert.equal(error.isRetryable, false);
});

await check("embeddings are not offered", async () => {
  const error = await rejection(embed({ model: provider.embeddingModel("any"), value: "text",
                                        maxRetries: 0 }));
  assert.match(error.message, /embeddings/);
});

finish("ai sdk");
