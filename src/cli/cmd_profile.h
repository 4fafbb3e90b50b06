// SPDX-License-Identifier: MIT
// `moestro profile`: learns which experts follow which, for the predictor `paths`.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace moestro {

// Adds the subcommand; running it puts what to do into `action`.
CLI::App* AddProfile(CLI::App& app, std::function<int()>& action);

}  // namespace moestro
