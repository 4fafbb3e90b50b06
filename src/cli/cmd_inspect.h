// SPDX-License-Identifier: MIT
// moestro inspect: what a model file holds and which memory it needs, without loading it.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace moestro {

// Adds the subcommand; parsing it sets `action` to what it does, which gives the exit code.
CLI::App* AddInspect(CLI::App& app, std::function<int()>& action);

}  // namespace moestro
