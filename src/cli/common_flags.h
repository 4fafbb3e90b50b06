// SPDX-License-Identifier: MIT
// The flags that several commands share, each described once.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/flags.h"
#include "cli/quality_flags.h"
#include "engine/engine_options.h"

namespace moestro {

struct CommonOptions {
  EngineOptions engine;
  QualityWish quality;  // of commands with AddQualityFlags()
  std::optional<uint32_t> seed;
  bool json = false;
  bool verbose = false;
};

// `options` must outlive the parsing. A value that does not parse ends it with exit code 2. Returns
// --ctx, for a command that knows better than its default.
Flag AddCommonFlags(Flags flags, CommonOptions& options);

// Names and ideas of all predictors, for --predictor.
std::string PredictorHelp(std::string_view default_text);
// --policy and --policy-file, of which only one may be given. `parse` takes the text of the first;
// `default_text` says in the help what happens without them.
void AddPolicyFlags(Flags flags, const std::string& default_text,
                    std::function<Status(const std::string&)> parse, std::string& policy_file);

}  // namespace moestro
