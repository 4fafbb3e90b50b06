// SPDX-License-Identifier: MIT
// Start here. The dashboard: a chat with the model, and beside it what the server does meanwhile.
import { Chat } from "./chat.js";
import { Server, byId, recall, remember } from "./common.js";
import { LiveState } from "./live.js";
import { ModelChoice } from "./models.js";

// The system's theme until a person chooses one.
function startTheme() {
  const root = document.documentElement;
  const button = byId("theme");
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const show = () => button.setAttribute("aria-pressed", String(isDark()));
  const chosen = recall("localStorage", "moestro-theme");
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remember("localStorage", "moestro-theme", root.dataset.theme);
    show();
  });
  system.addEventListener("change", show);
  show();
}

function start() {
  const server = new Server();
  const panel = byId("key-panel");
  const live = new LiveState(server, () => {
    panel.hidden = false;
  });
  const askForKey = () => {
    panel.hidden = false;
    byId("key").focus();
  };
  const choice = new ModelChoice(server);
  const chat = new Chat(server, () => choice.name || live.model, askForKey);
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    server.useKey(byId("key").value);
    byId("key").value = "";
    panel.hidden = true;
    chat.focus();
    live.look();
    choice.look();
  });
  live.look();
  choice.look();
}

startTheme();
start();
