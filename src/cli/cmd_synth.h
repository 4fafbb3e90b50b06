// SPDX-License-Identifier: MIT
// moestro synth: a GGUF of a real model's shape with synthetic weights.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace moestro {

// Adds the subcommand; parsing it sets `action` to what it does, which gives the exit code.
CLI::App* AddSynth(CLI::App& app, std::function<int()>& action);

}  // namespace moestro
