// SPDX-License-Identifier: MIT
// The map of the experts: a row for each layer, a column for each expert; who is in memory, and who
// has been there in the last minute.
import { byId, counted, make, percent, setCount, setText, whole } from "./common.js";

const memory = 60;  // looks that warmth is a share of
const largestCell = 18;  // pixels of the page
const lowestRow = 4;

function layerRow() {
  const row = make("tr", "");
  const name = make("th", "");
  name.scope = "row";
  row.append(name, make("td", ""), make("td", ""));
  return row;
}

export class ExpertMap {
  #canvas = byId("map");
  #rows = 0;
  #columns = 0;
  #looks = [];  // for each look a byte for each expert: is it in memory
  #counts = new Uint16Array(0);  // their sums
  #cell = { width: 1, height: 1 };  // in pixels of the canvas

  constructor() {
    this.#canvas.addEventListener("pointermove", (event) => this.#name(event));
    byId("layers").addEventListener("toggle", () => this.#showLayers());
  }

  show(state) {
    const { expert_layers: rows, experts: columns, resident_experts: resident } = state;
    if (rows !== this.#rows || columns !== this.#columns) {
      [this.#rows, this.#columns, this.#looks] = [rows, columns, []];
      this.#counts = new Uint16Array(rows * columns);
    }
    // An expert may be there more than once, in copies of other widths; it counts once.
    const here = new Uint8Array(rows * columns);
    for (const [layer, expert] of resident) {
      if (layer < rows && expert < columns) here[layer * columns + expert] = 1;
    }
    this.#looks.push(here);
    here.forEach((is, i) => { this.#counts[i] += is; });
    if (this.#looks.length > memory) {
      this.#looks.shift().forEach((was, i) => { this.#counts[i] -= was; });
    }
    const n = here.reduce((sum, is) => sum + is, 0);
    const inMemory = `${whole.format(n)} of ${counted(rows * columns, "expert")} in memory`;
    const slots = counted(state.expert_slots, "slot");
    setText(byId("map-note"), `${inMemory}, ${whole.format(resident.length)} of ${slots} taken`);
    this.#draw(here);
    this.#showLayers();
  }

  // The colours are those of the legend, so that they follow the theme.
  #draw(here) {
    const room = byId("map-note").clientWidth;
    if (here.length === 0 || room === 0) return;
    const scale = devicePixelRatio;
    const width = Math.min(largestCell * scale, Math.max(1, (room * scale) / this.#columns));
    const height = Math.round(Math.max(lowestRow * scale, width));
    const canvas = this.#canvas;
    canvas.width = Math.round(width * this.#columns);
    canvas.height = height * this.#rows;
    canvas.style.width = `${canvas.width / scale}px`;
    this.#cell = { width, height };
    const gap = width >= 4 ? 1 : 0;
    const colour = (id) => getComputedStyle(byId(id)).backgroundColor;
    const [isHere, was, away] = ["swatch-here", "swatch-was", "swatch-away"].map(colour);
    const context = canvas.getContext("2d");
    here.forEach((is, i) => {
      const column = i % this.#columns;
      const x = Math.round(column * width);
      const nextX = Math.round((column + 1) * width);
      const y = Math.floor(i / this.#columns) * height;
      const share = this.#counts[i] / this.#looks.length;
      const fill = (style, strength) => {
        context.fillStyle = style;
        context.globalAlpha = strength;
        context.fillRect(x, y, nextX - x - gap, height - gap);
      };
      fill(away, 1);
      if (is || share > 0) fill(is ? isHere : was, (is ? 0.4 : 0.15) + 0.6 * share);
    });
  }

  // Says what is under the pointer.
  #name(event) {
    const here = this.#looks.at(-1);
    if (here === undefined) return;
    const zoom = this.#canvas.width / this.#canvas.clientWidth;
    const expert = Math.floor((event.offsetX * zoom) / this.#cell.width);
    const layer = Math.floor((event.offsetY * zoom) / this.#cell.height);
    if (expert < 0 || layer < 0 || expert >= this.#columns || layer >= this.#rows) return;
    const i = layer * this.#columns + expert;
    const share = percent.format(this.#counts[i] / this.#looks.length);
    const place = here[i] ? "in memory" : "on disk";
    setText(byId("map-cell"),
            `Layer ${layer}, expert ${expert}: ${place}; in memory in ${share} of the last minute`);
  }

  #showLayers() {
    const here = this.#looks.at(-1);
    if (!byId("layers").open || here === undefined) return;
    const table = byId("layer-rows");
    setCount(table, this.#rows, layerRow);
    for (let layer = 0; layer < this.#rows; ++layer) {
      const row = here.subarray(layer * this.#columns, (layer + 1) * this.#columns);
      const n = row.reduce((sum, is) => sum + is, 0);
      const cells = table.children[layer].children;
      setText(cells[0], String(layer));
      setText(cells[1], `${n} of ${this.#columns}`);
      setText(cells[2], percent.format(this.#columns > 0 ? n / this.#columns : 0));
    }
  }
}
