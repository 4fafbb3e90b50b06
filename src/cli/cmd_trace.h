// SPDX-License-Identifier: MIT
// `moestro trace`: records routing, imports and summarises traces.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace moestro {

// Adds the subcommand; running it puts what to do into `action`.
CLI::App* AddTrace(CLI::App& app, std::function<int()>& action);

}  // namespace moestro
