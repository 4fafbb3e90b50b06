// SPDX-License-Identifier: MIT
// The chat: sends the conversation, writes down the answer as it comes.
//
// What a model or a person wrote becomes text nodes, never markup.
import { Refusal, byId, counted, make, rateText, setText, whole } from "./common.js";

const pause = (ms, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    signal.addEventListener("abort", stop, { once: true });
  });

// The data of each server-sent event. Bytes may be cut anywhere: within a character, within a line,
// between the two halves of its end.
async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let endedByReturn = false;
  let data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += endedByReturn && value.startsWith("\n") ? value.slice(1) : value;
      endedByReturn = value.endsWith("\r");
      const lines = rest.split(/\r\n|\r|\n/);
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
        if (line !== "" || data.length === 0) continue;
        yield data.join("\n");
        data = [];
      }
    }
  } finally {
    reader.cancel().catch(() => {});  // a broken stream has nothing left to cancel
  }
}

// What lies between two fences of three backticks is code.
function rendered(text) {
  const parts = text.split(/^```.*\n?/m).map((part, i) => [part, i % 2 === 1]);
  return parts
    .filter(([part]) => part !== "")
    .map(([part, isCode]) => (isCode ? make("pre", "", part.replace(/\n$/, "")) : part));
}

// One answer in the conversation.
class Answer {
  item = make("li", "said");
  content = "";
  reasoning = "";
  #thoughts = make("details", "reasoning");
  #summary = make("summary", "", "Reasoning, under way");
  #thought = document.createTextNode("");
  #text = document.createTextNode("");
  #body = make("div", "text");
  #note = make("p", "muted", "waiting for the server");
  #reason = "";
  #usage = null;
  #timings = null;

  constructor(name) {
    const thoughtBody = make("div", "text");
    thoughtBody.append(this.#thought);
    this.#thoughts.append(this.#summary, thoughtBody);
    this.#thoughts.hidden = true;
    this.#body.append(this.#text);
    this.item.append(make("h3", "", name), this.#thoughts, this.#body, this.#note);
    this.item.setAttribute("aria-busy", "true");
  }

  say(note) {
    setText(this.#note, note);
  }

  take(chunk) {
    const choice = chunk.choices?.[0];
    const { reasoning_content: thought, content } = choice?.delta ?? {};
    if (thought) {
      this.reasoning += thought;
      this.#thought.appendData(thought);
      this.#thoughts.hidden = false;
    }
    if (content) {
      this.content += content;
      this.#text.appendData(content);
      setText(this.#summary, "Reasoning");
    }
    if (thought || content) this.say("writing");
    this.#reason = choice?.finish_reason ?? this.#reason;
    this.#usage = chunk.usage ?? this.#usage;
    this.#timings = chunk.timings ?? this.#timings;
  }

  // how: what ended it, if it was not the model.
  finish(how) {
    this.item.removeAttribute("aria-busy");
    this.#body.replaceChildren(...rendered(this.content));
    setText(this.#summary, "Reasoning");
    this.say([how || this.#ending(), ...this.#figures()].join(" · "));
  }

  #ending() {
    if (this.#reason === "length") return "cut: no more tokens were allowed";
    return this.#reason === "stop" ? "finished" : `finished: ${this.#reason}`;
  }

  #figures() {
    const figures = [];
    const usage = this.#usage;
    const speed = this.#timings?.predicted_per_second;
    if (usage) figures.push(counted(usage.completion_tokens, "token"));
    if (speed > 0) figures.push(`${rateText(speed)} tok/s`);
    if (usage) {
      const cached = usage.prompt_tokens_details?.cached_tokens ?? this.#timings?.cache_n ?? 0;
      figures.push(`prompt of ${counted(usage.prompt_tokens, "token")}`,
                   `${whole.format(cached)} of them from the cache`);
    }
    return figures;
  }
}

export class Chat {
  #server;
  #askForKey;
  #model;  // gives its name, "" while it is not known
  #turn = null;  // the answer under way: { stop: AbortController, messages }
  #messages = [];  // as the API takes them
  #list = byId("messages");
  #log = byId("log");
  #field = byId("message");

  constructor(server, model, askForKey) {
    this.#server = server;
    this.#model = model;
    this.#askForKey = askForKey;
    byId("chat-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    this.#field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#send();
    });
    byId("chat").addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.#turn?.stop.abort();
    });
    byId("stop").addEventListener("click", () => this.#turn?.stop.abort());
    byId("new-chat").addEventListener("click", () => this.#begin());
  }

  focus() {
    this.#field.focus();
  }

  #begin() {
    this.#turn?.stop.abort();
    this.#turn = null;
    this.#messages = [];
    this.#list.replaceChildren();
    this.#showBusy(false);
    setText(byId("chat-error"), "");
    this.focus();
  }

  // null: a field holds what the server would not take; the browser says so.
  #settings() {
    const settings = {};
    for (const name of ["temperature", "max_tokens", "seed"]) {
      const field = byId(name);
      if (!field.checkValidity()) {
        byId("settings").open = true;
        field.reportValidity();
        return null;
      }
      if (field.value !== "") settings[name] = field.valueAsNumber;
    }
    return settings;
  }

  async #send() {
    const text = this.#field.value;
    const settings = this.#turn === null ? this.#settings() : null;
    if (settings === null || text.trim() === "") return;
    const turn = { stop: new AbortController(), messages: this.#messages };
    const question = make("li", "said user");
    question.append(make("h3", "", "You"), make("div", "text", text));
    const answer = new Answer(this.#model() || "Moestro");
    this.#list.append(question, answer.item);
    this.#log.scrollTop = this.#log.scrollHeight;
    this.#field.value = "";
    setText(byId("chat-error"), "");
    this.#turn = turn;
    this.#showBusy(true);
    turn.messages.push({ role: "user", content: text });
    let failure = null;
    try {
      await this.#fetchAnswer(turn, settings, answer);
    } catch (error) {
      failure = error;
    }
    if (this.#turn !== turn) return;  // a new chat has begun
    this.#turn = null;
    this.#showBusy(false);
    this.#follow(() => this.#end(turn, question, answer, failure));
  }

  #end(turn, question, answer, failure) {
    // What came with the last bytes may be the whole answer after all.
    const wasStopped = failure !== null && turn.stop.signal.aborted;
    if (failure === null || answer.content !== "" || answer.reasoning !== "") {
      turn.messages.push({ role: "assistant", content: answer.content });
      answer.finish(failure === null ? "" : wasStopped ? "stopped" : "broken off");
      this.#announce(wasStopped ? "Stopped." : answer.content);
    } else {  // as if it had not been sent
      turn.messages.pop();
      question.remove();
      answer.item.remove();
      if (this.#field.value === "") this.#field.value = question.lastElementChild.textContent;
      if (wasStopped) this.#announce("Stopped before anything was written.");
    }
    if (failure !== null && !wasStopped) this.#showFailure(failure);
  }

  async #fetchAnswer(turn, settings, answer) {
    const { signal } = turn.stop;
    const system = byId("system").value;
    const first = system.trim() === "" ? [] : [{ role: "system", content: system }];
    const request = { ...settings, messages: [...first, ...turn.messages], stream: true,
                      stream_options: { include_usage: true } };
    if (this.#model() !== "") request.model = this.#model();
    const options = { method: "POST", headers: { "Content-Type": "application/json" },
                      body: JSON.stringify(request), signal };
    for (;;) {
      try {
        const reply = await this.#server.ask("/v1/chat/completions", options);
        answer.say("the prompt is being read");
        return await this.#read(reply, answer);
      } catch (error) {
        if (error.status !== 503) throw error;
        answer.say(`The server is not ready: ${error.message}. Trying again.`);
        await pause(2000, signal);
      }
    }
  }

  async #read(reply, answer) {
    for await (const data of eventsOf(reply.body)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Refusal(0, chunk.error.message ?? "The answer was given up.");
      this.#follow(() => answer.take(chunk));
    }
    throw new Refusal(0, "The connection ended before the answer did.");
  }

  // A reader at the end of the conversation stays at its end. A reader who has scrolled up stays.
  #follow(change) {
    const log = this.#log;
    const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    change();
    if (isAtEnd) log.scrollTop = log.scrollHeight;
  }

  #showFailure(failure) {
    const { message, status } = failure;
    const hasWords = failure instanceof Refusal;
    const words = status === 401 ? "The server wants a key that it knows." : message;
    setText(byId("chat-error"), hasWords ? words : `The answer broke off: ${message}`);
    if (status === 401) this.#askForKey();
  }

  // Read out once; a user can read the conversation itself again.
  #announce(text) {
    setText(byId("announce"), text);
    setTimeout(() => setText(byId("announce"), ""), 10000);
  }

  #showBusy(isBusy) {
    const [shown, gone] = isBusy ? [byId("stop"), byId("send")] : [byId("send"), byId("stop")];
    const hadFocus = document.activeElement === gone;
    shown.hidden = false;
    gone.hidden = true;
    if (hadFocus) (isBusy ? shown : this.#field).focus();
  }
}
