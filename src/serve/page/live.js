// SPDX-License-Identifier: MIT
// The live state: looks at the server once a second and shows what it does. A figure of "now" is
// the difference of two looks.
import { byId, bytesText, counted, make, percent, rateText, setCount, setMeter, setText, whole }
  from "./common.js";
import { ExpertMap } from "./map.js";

const period = 1000;  // ms between two looks
const patience = 10000;  // ms until a look has failed
const fewLooks = 5;  // that "now" reaches back
const manyLooks = 30;  // the same where a few hold hardly a token
const fewTokens = 4;
const historyLength = 120;

const show = (id, text) => setText(byId(id), text);
const shareOf = (part, all) => (all > 0 ? part / all : null);
const shareText = (share) => (share === null ? "–" : percent.format(share));
const spoken = (share) => (share === null ? "nothing to measure" : percent.format(share));

// A line of the last two minutes.
class History {
  #values = [];
  #name;

  constructor(name) {
    this.#name = name;
  }

  add(value) {
    this.#values = [...this.#values, value].slice(-historyLength);
    const most = Math.max(...this.#values);
    const left = historyLength - this.#values.length;
    const height = (v) => (most > 0 ? 31 - 29 * (v / most) : 31).toFixed(1);
    const points = this.#values.map((v, i) => `${left + i},${height(v)}`);
    byId(`${this.#name}-line`).setAttribute("points", points.join(" "));
    show(`${this.#name}-rate`, rateText(value));
    show(`${this.#name}-peak`, `${rateText(most)} tok/s at most in the last 2 minutes`);
  }
}

function textRow() {
  const row = make("li", "");
  const meter = make("div", "meter");
  meter.setAttribute("role", "meter");
  meter.setAttribute("aria-valuemin", "0");
  meter.setAttribute("aria-valuemax", "100");
  meter.setAttribute("aria-label", "Prompt computed");
  meter.append(make("span", ""));
  row.append(make("p", ""), meter);
  return row;
}

function showText(row, place) {
  const [words, meter] = row.children;
  const isWritten = place.state === "decode";
  const cached = place.n_prompt_tokens_cache > 0
    ? `, ${whole.format(place.n_prompt_tokens_cache)} of them from the cache` : "";
  const done = Math.min(place.n_past, place.n_prompt_tokens);
  const length = whole.format(place.n_prompt_tokens);
  const reading = `${whole.format(done)} of ${length} prompt tokens read`;
  const writing = `${counted(place.n_decoded, "token")} written after a prompt of ${length}`;
  setText(words, `Text ${place.id + 1}: ${isWritten ? writing : reading}${cached}`);
  setMeter(meter, isWritten ? null : shareOf(done, place.n_prompt_tokens), reading);
}

export class LiveState {
  model = "";
  #server;
  #wantKey;
  #looks = [];  // { time, state }, the newest last
  #timer = 0;
  #isLooking = false;
  #decode = new History("decode");
  #prefill = new History("prefill");
  #map = new ExpertMap();

  constructor(server, wantKey) {
    this.#server = server;
    this.#wantKey = wantKey;
    document.addEventListener("visibilitychange", () => this.look());
  }

  // And again and again, while somebody can see it and the server takes the key.
  async look() {
    clearTimeout(this.#timer);
    if (this.#isLooking) return;
    if (document.hidden) {
      this.#looks = [];
      return;
    }
    this.#isLooking = true;
    let again = true;
    try {
      const reply = await this.#server.ask("/state", { signal: AbortSignal.timeout(patience) });
      this.#show(await reply.json());
      this.#tell("connected", true);
    } catch (error) {
      this.#looks = [];
      again = error.status !== 401;
      this.#fail(error);
    }
    this.#isLooking = false;
    if (again) this.#timer = setTimeout(() => this.look(), period);
  }

  #tell(status, isGood) {
    show("status", status);
    byId("status").classList.toggle("good", isGood);
  }

  #fail(error) {
    if (error.status === 503) {
      const isLoading = error.message === "Loading model";
      return this.#tell(isLoading ? "the model is being loaded" : error.message, false);
    }
    if (error.status !== 401) return this.#tell("no answer from the server; trying again", false);
    this.#wantKey();
    const hasKey = this.#server.key !== "";
    const status = hasKey ? "the server does not know this key" : "the server wants a key";
    return this.#tell(status, false);
  }

  #show(state) {
    const last = this.#looks.at(-1)?.state;
    const isRestarted = last !== undefined &&
      (state.generated < last.generated || state.disk_bytes < last.disk_bytes);
    if (isRestarted) this.#looks = [];
    // The list of experts is large, and only the map needs it.
    this.#looks.push({ time: performance.now(), state: { ...state, resident_experts: null } });
    this.#looks = this.#looks.slice(-manyLooks - 1);
    this.model = state.model;
    show("model", state.model);
    show("context", `context of ${counted(state.n_ctx, "token")}`);
    this.#showRates(state);
    this.#showRoom(state);
    this.#showTexts(state);
    this.#map.show(state);
  }

  // What has changed since "now" began: differences of counters, and the seconds between. With a
  // counter's name it reaches back until that has changed enough to say something.
  #since(name = "") {
    const newest = this.#looks.at(-1);
    const looks = this.#looks.slice(0, -1).reverse();
    const isEnough = ({ state }, i) =>
      i + 1 >= fewLooks && (name === "" || newest.state[name] - state[name] >= fewTokens);
    const { time, state } = looks.find(isEnough) ?? looks.at(-1) ?? newest;
    const of = (field) => newest.state[field] - state[field];
    return { seconds: (newest.time - time) / 1000, of };
  }

  #showRates(state) {
    const is = (phase) => state.slots.some((place) => place.is_processing && place.state === phase);
    const now = this.#since();
    const decode = is("decode") ? this.#since("generated") : now;
    const prefill = is("prefill") ? this.#since("prompt_tokens") : now;
    this.#decode.add(shareOf(decode.of("generated"), decode.seconds) ?? 0);
    this.#prefill.add(shareOf(prefill.of("prompt_tokens"), prefill.seconds) ?? 0);
    this.#showBound(state, decode);

    const found = shareOf(now.of("hits"), now.of("hits") + now.of("misses"));
    const inAll = shareText(shareOf(state.hits, state.hits + state.misses));
    const decodeHits = shareOf(state.decode_hits, state.decode_hits + state.decode_misses);
    show("hits-now", shareText(found));
    show("hits-note", `${inAll} since the start, ${shareText(decodeHits)} while writing`);
    setMeter(byId("hits-meter"), found ?? 0, spoken(found));

    const rate = shareOf(now.of("disk_bytes"), now.seconds) ?? 0;
    const rateMb = rateText(rate / 1e6);
    const limit = `${whole.format(state.disk_bandwidth / 1e6)} MB/s`;
    const speed = state.disk_bandwidth > 0 ? `the disk can do ${limit}` : "its speed is not known";
    show("disk-rate", rateMb);
    show("disk-note", `${speed}; ${bytesText(state.disk_bytes)} read since the start`);
    setMeter(byId("disk-meter"), shareOf(rate, state.disk_bandwidth), `${rateMb} MB/s of ${limit}`);
  }

  // No decode is faster than its bytes come from the disk, or its weights from memory.
  #showBound(state, now) {
    const secondsAt = (field, bandwidth) => shareOf(now.of(field), bandwidth) ?? 0;
    const disk = secondsAt("decode_bytes", state.disk_bandwidth);
    const memory = secondsAt("decode_touched_bytes", state.memory_bandwidth);
    const reached = shareOf(Math.max(disk, memory), now.of("decode_seconds"));
    const isKnown = state.disk_bandwidth > 0 || state.memory_bandwidth > 0;
    const waited = shareText(shareOf(now.of("decode_wait_seconds"), now.of("decode_seconds")));
    show("bound", shareText(isKnown ? reached : null));
    setMeter(byId("bound-meter"), isKnown ? reached ?? 0 : null, spoken(reached));
    if (!isKnown) return show("bound-note", "neither disk nor memory was measured");
    if (reached === null) return show("bound-note", "nothing is being written");
    const limit = disk > memory ? "disk" : "memory";
    return show("bound-note",
                `of what the ${limit} allows; ${waited} of the time is spent waiting for reads`);
  }

  #showRoom(state) {
    const memory = shareOf(state.resident, state.ram);
    const resident = bytesText(state.resident);
    show("memory", resident);
    show("memory-note", `${shareText(memory)} of the ${bytesText(state.ram)} allowed`);
    setMeter(byId("memory-meter"), memory, `${resident} of ${bytesText(state.ram)}`);

    const used = state.kv_positions - state.kv_free;
    const share = shareOf(used, state.kv_positions);
    const words = `${whole.format(used)} of ${whole.format(state.kv_positions)} positions`;
    show("kv", shareText(share));
    show("kv-note", `${words} in use`);
    setMeter(byId("kv-meter"), share, words);

    show("kept", `${whole.format(state.kept_prefixes)} (${counted(state.kept_tokens, "token")})`);
    show("saved", `${whole.format(state.saved_prefixes)} (${bytesText(state.saved_bytes)})`);
    show("finished", whole.format(state.finished));
    show("cancelled", whole.format(state.cancelled));
    show("failed", whole.format(state.failed));
    show("generated", whole.format(state.generated));
    show("prompt-tokens", whole.format(state.prompt_tokens));
    show("cached-tokens", whole.format(state.cached_tokens));
  }

  #showTexts(state) {
    const active = state.slots.filter((place) => place.is_processing);
    const places = whole.format(state.slots.length);
    show("queue", `${whole.format(active.length)} of ${places} being computed, ` +
      `${whole.format(state.waiting)} waiting`);
    const list = byId("texts");
    setCount(list, active.length, textRow);
    active.forEach((place, i) => showText(list.children[i], place));
  }
}
