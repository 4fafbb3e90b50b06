// SPDX-License-Identifier: MIT
// `moestro sim`: replays a trace against policies and sizes.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace moestro {

// Adds the subcommand; running it puts what to do into `action`.
CLI::App* AddSim(CLI::App& app, std::function<int()>& action);

}  // namespace moestro
