// SPDX-License-Identifier: MIT
// The commands of both programs by name, in the order of their lists: `moestro` is what a user
// runs, `moestro-lab` what a researcher runs. Each program lists or suggests the other's.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace moestro {

struct CommandName {
  std::string_view name;
  std::string_view help;  // a line
};

inline constexpr std::string_view kUserProgram = "moestro";
inline constexpr std::string_view kLabProgram = "moestro-lab";

inline constexpr std::array kUserCommands = {
    CommandName{"run", "generate text"},
    CommandName{"serve", "answer OpenAI's and Anthropic's clients over HTTP"},
    CommandName{"health", "ask a server on this machine whether it is ready"},
    CommandName{"plan", "whether a model fits here, and how fast it will be"},
    CommandName{"pull", "fetches a model by its name"},
    CommandName{"list", "the models of the cache that tools of the hub share"},
    CommandName{"remove", "removes a model from the cache"},
    CommandName{"bench", "measure prefill and decode speed"},
    CommandName{"inspect", "what a model holds and what fits in memory"},
    CommandName{"devices", "list what can compute, and how fast"},
    CommandName{"doctor", "what is slow or wrong on this machine, and the remedy"},
};

inline constexpr std::array kLabCommands = {
    CommandName{"eval", "perplexity, and how far a run is from the exact one"},
    CommandName{"logits", "logits after some tokens, as JSON"},
    CommandName{"trace", "record which experts a text is routed to"},
    CommandName{"sim", "replay a trace against policies and cache sizes"},
    CommandName{"profile", "learn from text which experts follow which"},
    CommandName{"imatrix", "measure on text which weights of the experts matter"},
    CommandName{"quantize", "write a model's experts at a lower type"},
    CommandName{"fit", "a width for each expert, fitted to a tolerance"},
    CommandName{"merge", "put together what the shards of a run left"},
    CommandName{"synth", "write a GGUF of a real model's shape, to measure a machine"},
    CommandName{"convert", "write a Hugging Face folder as a GGUF file"},
};

constexpr bool IsLabCommand(std::string_view name) {
  return std::ranges::contains(kLabCommands, name, &CommandName::name);
}

// The row of a name; a name without a row does not compile.
consteval CommandName CommandNamed(std::string_view name) {
  const auto* const user = std::ranges::find(kUserCommands, name, &CommandName::name);
  if (user != kUserCommands.end()) return *user;
  const auto* const lab = std::ranges::find(kLabCommands, name, &CommandName::name);
  if (lab == kLabCommands.end()) throw "no such command";
  return *lab;
}

// `moestro` starts the laboratory with this and its own version before the command's arguments:
// "--called-by-moestro=0.1.0".
inline constexpr std::string_view kCalledByMoestro = "--called-by-moestro=";

}  // namespace moestro
