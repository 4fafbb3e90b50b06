// SPDX-License-Identifier: MIT
// moestro run: text from a model, once or in a conversation.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace moestro {

// Adds the subcommand; parsing it sets `action` to what it does, which gives the exit code.
CLI::App* AddRun(CLI::App& app, std::function<int()>& action);

}  // namespace moestro
