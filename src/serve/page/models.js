// SPDX-License-Identifier: MIT
// The choice of a model, where the server has several: the chat goes to the chosen one. A server of
// one model, and one that has not said yet what it has, shows no choice.
import { byId, bytesText, recall, remember } from "./common.js";

const writesText = (model) => model.type !== "embeddings" && !model.error;

function optionOf(model) {
  const notes = [];
  if (model.loaded) notes.push("loaded");
  else if (model.needs) notes.push(`needs ${bytesText(model.needs.smallest)}`);
  return new Option([model.id, ...notes].join(" · "), model.id);
}

export class ModelChoice {
  #server;
  #select = byId("choice");
  #shown = "";  // the list, as it is shown

  constructor(server) {
    this.#server = server;
    this.#select.addEventListener("change", () => {
      remember("sessionStorage", "moestro-model", this.name);
    });
    // What is loaded may have changed since.
    this.#select.addEventListener("focus", () => this.look());
  }

  // "": there is nothing to choose.
  get name() {
    return this.#select.hidden ? "" : this.#select.value;
  }

  async look() {
    let models;
    try {
      const reply = await this.#server.ask("/v1/models");
      models = (await reply.json()).data.filter(writesText);
    } catch {
      return;  // the live state says what is wrong
    }
    const options = models.map(optionOf);
    const shown = options.map((option) => option.text).join("\n");
    if (shown === this.#shown) return;
    const wanted = this.name || recall("sessionStorage", "moestro-model");
    const first = models.find((model) => model.loaded) ?? models[0];
    const chosen = models.find((model) => model.id === wanted) ?? first;
    this.#shown = shown;
    this.#select.replaceChildren(...options);
    this.#select.hidden = models.length < 2;
    if (chosen) this.#select.value = chosen.id;
  }
}
