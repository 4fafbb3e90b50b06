// SPDX-License-Identifier: MIT
// A coding agent edits a file, with a running server as its model.
//
//   node agent.mjs http://127.0.0.1:8080
//
// The tiny model cannot decide what to do. Between the agent and the server a proxy does: it tells
// the server to call the agent's tool with the wanted arguments, and after the tool's result to say
// "done". What the agent sends else, and all answers, pass through as they are.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, request as ask } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { baseFromArguments, check, finish } from "./checks.mjs";

const base = baseFromArguments("agent.mjs");
const patience = 120000;  // ms for the agent's whole work
const before = "def greet():\n    return 'helo'\n";
const after = "def greet():\n    return 'hello'\n";
const edit = { path: "greet.py", edits: [{ oldText: "'helo'", newText: "'hello'" }] };

const constant = (value) => ({ type: "object", required: Object.keys(value),
  additionalProperties: false,
  properties: Object.fromEntries(Object.entries(value).map(([key, v]) => [key, { const: v }])) });

// The agent's request with a decision in it.
function steered(body) {
  const isEdited = body.messages.some(({ role }) => role === "tool");
  if (isEdited) return { ...body, tool_choice: "none", grammar: 'root ::= "done"' };
  const tools = body.tools.map((tool) => tool.function.name !== "edit" ? tool
    : { ...tool, function: { ...tool.function, parameters: constant(edit) } });
  return { ...body, tools, tool_choice: { type: "function", function: { name: "edit" } } };
}

const seen = [];  // the requests as the agent sent them

async function bodyOf(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

async function relay(from, to) {
  const body = JSON.parse(await bodyOf(from));
  seen.push(body);
  const bytes = Buffer.from(JSON.stringify(steered(body)));
  const { "transfer-encoding": chunked, ...headers } = from.headers;
  assert.ok(chunked === undefined || chunked === "chunked");
  const onward = ask(new URL(from.url, base),
    { method: from.method, headers: { ...headers, "content-length": bytes.length } },
    (answer) => {
      to.writeHead(answer.statusCode, answer.headers);
      answer.pipe(to);
    });
  onward.on("error", (error) => to.destroy(error));
  onward.end(bytes);
}

// An agent of its own folders: it reads no settings of the user's and leaves nothing behind.
function agentIn(folder, port) {
  const settings = join(folder, "settings");
  const work = join(folder, "work");
  mkdirSync(settings);
  mkdirSync(work);
  writeFileSync(join(work, edit.path), before);
  const models = [{ id: "tiny", contextWindow: 16384, maxTokens: 2000 }];
  const tiny = { baseUrl: `http://127.0.0.1:${port}/v1`, api: "openai-completions", apiKey: "any",
                 models };
  writeFileSync(join(settings, "models.json"), JSON.stringify({ providers: { tiny } }));
  // It would make a summary of the work as soon as little of the context is left.
  writeFileSync(join(settings, "settings.json"),
                JSON.stringify({ compaction: { enabled: false } }));
  const main = fileURLToPath(import.meta.resolve("@mariozechner/pi-coding-agent"));
  const program = join(main, "..", "cli.js");
  const child = spawn(process.execPath,
    [program, "--print", "--offline", "--no-session", "--provider", "tiny", "--model", "tiny",
     "Mend the word in greet.py"],
    { cwd: work, timeout: patience, stdio: ["ignore", "pipe", "pipe"],
      env: { PATH: process.env.PATH, HOME: folder, PI_CODING_AGENT_DIR: settings,
             PI_TELEMETRY: "0" } });
  return { child, file: join(work, edit.path) };
}

await check("an agent edits a file and says that it is done", async () => {
  const proxy = createServer((from, to) => relay(from, to).catch((error) => to.destroy(error)));
  await new Promise((listening) => proxy.listen(0, "127.0.0.1", listening));
  const folder = mkdtempSync(join(tmpdir(), "moestro-agent-"));
  try {
    const { child, file } = agentIn(folder, proxy.address().port);
    const exit = new Promise((done) => child.on("exit", (...how) => done(how)));
    const [said, wrong] = await Promise.all([bodyOf(child.stdout), bodyOf(child.stderr)]);
    const [status] = await exit;
    assert.equal(status, 0, wrong);
    assert.equal(said.trim(), "done");
    assert.equal(readFileSync(file, "utf8"), after);
  } finally {
    proxy.close();
    rmSync(folder, { recursive: true });
  }
});

await check("the agent streamed and sent its tool's result", async () => {
  assert.equal(seen.length, 2);
  assert.ok(seen.every(({ stream }) => stream === true));
  const [call, result] = seen[1].messages.slice(-2);
  assert.deepEqual(JSON.parse(call.tool_calls[0].function.arguments), edit);
  assert.equal(result.role, "tool");
  assert.equal(result.tool_call_id, call.tool_calls[0].id);
});

finish("agent");
