// SPDX-License-Identifier: MIT
// OpenAI's client against a running server: tools, and answers that must have a form.
//
//   node openai_forms.mjs http://127.0.0.1:8080
//
// The model calls tools and fills forms with nonsense; that it calls the right one with arguments
// that fit their schema is the server's work.
import assert from "node:assert/strict";
import { Ajv } from "ajv";
import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { baseFromArguments, check, collect, finish, rejection } from "./checks.mjs";

const base = baseFromArguments("openai_forms.mjs");
const client = new OpenAI({ apiKey: "any", baseURL: `${base}/v1`, maxRetries: 0 });
const model = "any";
const messages = [{ role: "user", content: "What is the weather in Rome?" }];
const greedy = { model, messages, max_tokens: 400, temperature: 0 };

const create = (body) => client.chat.completions.create(body);
const ajv = new Ajv({ strict: false });
const fits = (schema, value) => {
  const isValid = ajv.validate(schema, value);
  assert.ok(isValid, `${JSON.stringify(value)}: ${ajv.errorsText()}`);
};

// Forms without unlimited strings or numbers: a model of nonsense would never end them.
const place = {
  type: "object",
  properties: {
    city: { enum: ["Rome", "Köln", "東京"] },
    days: { type: "integer", minimum: 1, maximum: 14 },
    units: { type: "string", maxLength: 8 },
  },
  required: ["city", "days", "units"],
  additionalProperties: false,
};
const empty = { type: "object", properties: {}, additionalProperties: false };
const tools = [
  { type: "function", function: { name: "weather", description: "Today's", parameters: place,
                                  strict: true } },
  { type: "function", function: { name: "time", parameters: empty } },
];
const schemas = { weather: place, time: empty };

function checkCalls(calls) {
  assert.ok(calls.length > 0);
  assert.equal(new Set(calls.map(({ id }) => id)).size, calls.length);
  for (const { id, type, function: { name, arguments: text } } of calls) {
    assert.match(id, /^call_/);
    assert.equal(type, "function");
    fits(schemas[name], JSON.parse(text));
  }
}

// What a client puts together from the pieces of a stream, by the letter of the format: the first
// piece of a call has its id and name and empty arguments, the rest only arguments.
function assembled(chunks) {
  const calls = [];
  for (const piece of chunks.flatMap((chunk) => chunk.choices[0]?.delta.tool_calls ?? [])) {
    if (piece.id === undefined) {
      assert.equal(piece.function.name, undefined);
      calls[piece.index].function.arguments += piece.function.arguments;
    } else {
      assert.equal(piece.index, calls.length);
      assert.equal(piece.function.arguments, "");
      calls.push(structuredClone(piece));
    }
  }
  return calls;
}

const reasonOf = (chunks) => chunks.map((c) => c.choices[0]?.finish_reason).find((r) => r);

await check("a required call", async () => {
  const [choice] = (await create({ ...greedy, tools, tool_choice: "required",
                                   parallel_tool_calls: false })).choices;
  assert.equal(choice.finish_reason, "tool_calls");
  assert.equal(choice.message.content, null);
  assert.equal(choice.message.tool_calls.length, 1);
  checkCalls(choice.message.tool_calls);
});

await check("a required call in a stream", async () => {
  const body = { ...greedy, tools, tool_choice: "required", parallel_tool_calls: false };
  const chunks = await collect(await create({ ...body, stream: true }));
  const calls = assembled(chunks);
  checkCalls(calls);
  assert.equal(reasonOf(chunks), "tool_calls");
  const [{ message }] = (await create(body)).choices;
  assert.deepEqual(calls.map((call) => call.function),
                   message.tool_calls.map((call) => call.function));
});

await check("calls beside each other", async () => {
  const chunks = await collect(await create({ ...greedy, tools, tool_choice: "required",
                                              max_tokens: 200, stream: true }));
  const calls = assembled(chunks);
  // Nothing ends the last call when the limit cuts it.
  checkCalls(reasonOf(chunks) === "length" ? calls.slice(0, -1) : calls);
});

await check("the client's own reader of streams puts calls together", async () => {
  const stream = client.chat.completions.stream({ ...greedy, tools: tools.slice(0, 1),
                                                  tool_choice: "required",
                                                  parallel_tool_calls: false });
  const done = [];
  stream.on("tool_calls.function.arguments.done", (call) => done.push(call));
  const answer = await stream.finalChatCompletion();
  checkCalls(answer.choices[0].message.tool_calls);
  assert.equal(done.length, 1);
  assert.deepEqual(done[0].parsed_arguments, JSON.parse(done[0].arguments));
});

await check("a named tool is called exactly once", async () => {
  for (const name of ["weather", "time"]) {
    const tool_choice = { type: "function", function: { name } };
    const [{ message, finish_reason: reason }] =
      (await create({ ...greedy, tools, tool_choice })).choices;
    checkCalls(message.tool_calls);
    assert.deepEqual(message.tool_calls.map((call) => call.function.name), [name]);
    assert.equal(reason, "tool_calls");
  }
});

await check("a name that no tool has is refused", async () => {
  const tool_choice = { type: "function", function: { name: "nobody" } };
  const error = await rejection(create({ ...greedy, tools, tool_choice }));
  assert.equal(error.status, 400);
  assert.match(error.param, /^tool_choice/);
});

await check("no call when none is allowed", async () => {
  const [{ message }] =
    (await create({ ...greedy, tools, tool_choice: "none", max_tokens: 40 })).choices;
  assert.ok(message.content.length > 0);
  assert.equal(message.tool_calls, undefined);
});

await check("a call or a text when the model may choose", async () => {
  const [{ message }] =
    (await create({ ...greedy, tools, tool_choice: "auto", max_tokens: 40 })).choices;
  assert.ok(message.content !== null || message.tool_calls.length > 0);
});

await check("a call and its result go back and forth", async () => {
  const asked = { ...greedy, tools, parallel_tool_calls: false };
  const [{ message }] = (await create({ ...asked, tool_choice: "required" })).choices;
  const [{ id }] = message.tool_calls;
  const turns = [...messages, message, { role: "tool", tool_call_id: id, content: "sunny" }];
  const answer = await create({ ...asked, messages: turns, tool_choice: "none", max_tokens: 20 });
  assert.ok(answer.choices[0].message.content.length > 0);
  assert.ok(answer.usage.prompt_tokens_details.cached_tokens > 50);
});

await check("the client runs a tool itself and goes on with its result", async () => {
  const seen = [];
  const weather = zodFunction({
    name: "weather",
    parameters: z.object({ city: z.enum(["Rome", "Oslo"]), days: z.int().min(1).max(9) }),
    function: (found) => {
      seen.push(found);
      return "sunny";
    },
  });
  const runner = client.chat.completions.runTools(
    { ...greedy, tools: [weather], tool_choice: "required", parallel_tool_calls: false },
    { maxChatCompletions: 2 });
  await runner.done();
  assert.equal(seen.length, 2);
  for (const { city, days } of seen) {
    assert.ok(["Rome", "Oslo"].includes(city) && days >= 1 && days <= 9);
  }
  const roles = runner.messages.map(({ role }) => role);
  assert.deepEqual(roles, ["user", "assistant", "tool", "assistant", "tool"]);
});

await check("json_object is an object", async () => {
  const [choice] = (await create({ ...greedy, response_format: { type: "json_object" } })).choices;
  if (choice.finish_reason === "stop") {
    assert.equal(typeof JSON.parse(choice.message.content), "object");
  }
  assert.match(choice.message.content, /^\s*\{/);
});

const report = {
  type: "object",
  properties: {
    kind: { const: "report" },
    tags: { type: "array", items: { enum: ["a", "b", "ß"] }, minItems: 1, maxItems: 3 },
    place: { $ref: "#/$defs/place" },
    note: { anyOf: [{ type: "null" }, { type: "string", maxLength: 5 }] },
    date: { type: "string", pattern: "^\\d{4}-\\d{2}$" },
  },
  required: ["kind", "tags", "place", "note", "date"],
  additionalProperties: false,
  $defs: { place },
};
const inReport = { type: "json_schema", json_schema: { name: "report", strict: true,
                                                       schema: report } };

await check("json_schema is kept, greedy and drawn", async () => {
  for (const drawn of [{}, { temperature: 1.5, seed: 1 }, { temperature: 1.5, seed: 2 }]) {
    const [choice] = (await create({ ...greedy, ...drawn, response_format: inReport })).choices;
    assert.equal(choice.finish_reason, "stop");
    fits(report, JSON.parse(choice.message.content));
  }
});

await check("json_schema is kept in a stream", async () => {
  const stream = client.chat.completions.stream({ ...greedy, response_format: inReport });
  const answer = await stream.finalChatCompletion();
  fits(report, JSON.parse(answer.choices[0].message.content));
});

await check("a schema that makes no sense is refused", async () => {
  for (const schema of [{ type: "number", minimum: "low" }, { $ref: "#/$defs/nowhere" }]) {
    const response_format = { type: "json_schema", json_schema: { name: "n", schema } };
    const error = await rejection(create({ ...greedy, response_format }));
    assert.equal(error.status, 400, String(error));
    assert.ok(error.message.length > 20);
  }
});

await check("the client parses an answer by a zod schema", async () => {
  const Event = z.object({
    name: z.enum(["party", "talk"]),
    day: z.int().min(1).max(31),
    guests: z.array(z.enum(["Ann", "Bob"])).max(2),
  });
  const answer = await client.chat.completions.parse(
    { ...greedy, response_format: zodResponseFormat(Event, "event") });
  assert.deepEqual(Event.parse(answer.choices[0].message.parsed),
                   answer.choices[0].message.parsed);
});

await check("the client parses a call by a zod schema", async () => {
  const parameters = z.object({ city: z.enum(["Rome", "Oslo"]) });
  const answer = await client.chat.completions.parse(
    { ...greedy, tools: [zodFunction({ name: "weather", parameters })],
      tool_choice: "required", parallel_tool_calls: false });
  const [call] = answer.choices[0].message.tool_calls;
  parameters.parse(call.function.parsed_arguments);
});

await check("a GBNF grammar is kept", async () => {
  const grammar = 'root ::= ("yes" | "no") " " [0-9]{3}';
  const [choice] = (await create({ ...greedy, grammar })).choices;
  assert.match(choice.message.content, /^(yes|no) \d{3}$/);
  assert.equal(choice.finish_reason, "stop");
});

await check("a grammar with a mistake is refused", async () => {
  const error = await rejection(create({ ...greedy, grammar: 'root ::= "a' }));
  assert.equal(error.status, 400);
  assert.equal(error.param, "grammar");
});

await check("characters are never cut in streams", async () => {
  // Of four bytes each: shorter ones libllama's grammars also take in four, which is not UTF-8 and
  // comes out as U+FFFD.
  const grammar = "root ::= [😀-😏]{40}";
  const chunks = await collect(await create({ ...greedy, temperature: 1, seed: 3, grammar,
                                              stream: true }));
  const pieces = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "");
  assert.equal([...pieces.join("")].length, 40);
  for (const piece of pieces) {
    assert.ok(piece.isWellFormed() && !piece.includes("�"), JSON.stringify(piece));
  }
});

await check("characters are never cut in calls", async () => {
  const face = { type: "object", properties: { face: { enum: ["😀\n\"é\"", "漢😀\\"] } },
                 required: ["face"], additionalProperties: false };
  const draw = [{ type: "function", function: { name: "draw", parameters: face } }];
  const chunks = await collect(await create({ ...greedy, tools: draw, tool_choice: "required",
                                              parallel_tool_calls: false, stream: true }));
  const [call] = assembled(chunks);
  fits(face, JSON.parse(call.function.arguments));
});

finish("openai: tools and forms");
