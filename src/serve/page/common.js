// SPDX-License-Identifier: MIT
// What the chat and the live state share: elements, numbers as text, the way to the server.
//
// Nothing is asked of anybody but the server that the page came from.

export const byId = (id) => document.getElementById(id);
export const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
export const precise = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 });
export const percent =
  new Intl.NumberFormat(undefined, { style: "percent", maximumFractionDigits: 1 });
export const rateText = (rate) => (rate >= 100 ? whole : precise).format(rate);
export const bytesText = (bytes) => {
  const isLarge = bytes >= 2 ** 30;
  return `${precise.format(bytes / 2 ** (isLarge ? 30 : 20))} ${isLarge ? "GiB" : "MiB"}`;
};
export const counted = (n, noun) => `${whole.format(n)} ${noun}${n === 1 ? "" : "s"}`;

export function make(tag, className, text = "") {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text;
  return element;
}

// Writes only what has changed: selections and screen readers keep their place.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setMeter(meter, share, words) {
  meter.hidden = share === null;
  const value = 100 * Math.min(1, Math.max(0, share ?? 0));
  meter.firstElementChild.style.width = `${value}%`;
  meter.setAttribute("aria-valuenow", value.toFixed(0));
  meter.setAttribute("aria-valuetext", words);
}

export function setCount(list, count, makeRow) {
  while (list.children.length > count) list.lastElementChild.remove();
  while (list.children.length < count) list.append(makeRow());
}

// A browser may forbid its storage; then nothing outlives the page.
export function recall(storage, name) {
  try {
    return window[storage].getItem(name);
  } catch {
    return null;
  }
}

export function remember(storage, name, value) {
  try {
    window[storage].setItem(name, value);
  } catch {
    return;
  }
}

// The server's own words for why it did not do it; status 0: it said nothing.
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export class Server {
  key = recall("sessionStorage", "moestro-key") ?? "";

  useKey(key) {
    this.key = key;
    remember("sessionStorage", "moestro-key", key);
  }

  async ask(path, options = {}) {
    const headers = { ...options.headers };
    if (this.key !== "") headers.Authorization = `Bearer ${this.key}`;
    let reply;
    try {
      reply = await fetch(path, { ...options, headers, cache: "no-store" });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new Refusal(0, "The server cannot be reached. Is it still running?");
    }
    if (reply.ok) return reply;
    const said = (await reply.json().catch(() => null))?.error?.message;
    const bare = `The server refused: status ${reply.status}.`;
    throw new Refusal(reply.status, typeof said === "string" && said !== "" ? said : bare);
  }
}
