// SPDX-License-Identifier: MIT
// moestro bench: prefill and decode speed, and how close it is to what the machine allows.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace moestro {

// Adds the subcommand; parsing it sets `action` to what it does, which gives the exit code.
CLI::App* AddBench(CLI::App& app, std::function<int()>& action);

}  // namespace moestro
