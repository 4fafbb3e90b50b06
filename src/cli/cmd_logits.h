// SPDX-License-Identifier: MIT
// moestro logits: the logits after some tokens, to compare engines.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace moestro {

// Adds the subcommand; parsing it sets `action` to what it does, which gives the exit code.
CLI::App* AddLogits(CLI::App& app, std::function<int()>& action);

}  // namespace moestro
