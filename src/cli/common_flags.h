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
class Option;
}  // namespace CLI

namespace moestro {

struct CommonOptions {
  EngineOptions engine;
  std::optional<uint32_t> seed;
  bool json = false;
  bool verbose = false;
};

// `options` must outlive the parsing. A value that does not parse ends it with exit code 2.
void AddCommonFlags(CLI::App& app, CommonOptions& options);

// Names and ideas of all predictors, for --predictor.
std::string PredictorHelp(std::string_view standard);
// --policy and --policy-file, of which only one may be given. `parse` takes the text of the first;
// `standard` says in the help what happens without them.
void AddPolicyFlags(CLI::App& app, const std::string& standard,
                    std::function<Status(const std::string&)> parse, std::string& policy_file);

// A flag whose text `parse` takes; its error becomes a usage error.
CLI::Option* AddParsedFlag(CLI::App& app, const std::string& names, const std::string& type,
                           const std::string& help,
                           std::function<Status(const std::string&)> parse);

}  // namespace moestro
