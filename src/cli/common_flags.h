// SPDX-License-Identifier: MIT
// The flags that several commands share, each described once.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/engine_options.h"

namespace CLI {
class App;
}

namespace moestro {

struct CommonOptions {
  EngineOptions engine;
  std::optional<uint32_t> seed;
  bool json = false;
  bool verbose = false;
};

// `options` must outlive the parsing. A value that does not parse ends it with exit code 2.
void AddCommonFlags(CLI::App& app, CommonOptions& options);

// Names, ideas and parameters of all policies, for --policy.
std::string PolicyHelp();
// The same for --predictor.
std::string PredictorHelp(std::string_view standard);

// A flag whose text `parse` takes; its error becomes a usage error.
void AddParsedFlag(CLI::App& app, const std::string& names, const std::string& type,
                   const std::string& help, std::function<Status(const std::string&)> parse);

}  // namespace moestro
