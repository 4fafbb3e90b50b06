// SPDX-License-Identifier: MIT
// The flags that several commands share, each described once.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "cli/flags.h"
#include "cli/quality_flags.h"
#include "engine/engine_options.h"
#include "text/draft_options.h"

namespace moestro {

struct CommonOptions {
  EngineOptions engine;
  QualityWish quality;  // for commands with AddQualityFlags()
  std::optional<uint32_t> seed;
  bool json = false;
  bool verbose = false;
};

// `options` must outlive the parsing. A value that does not parse ends the parsing with exit code
// 2. Returns --ctx, for a command that sets a better default.
Flag AddCommonFlags(Flags flags, CommonOptions& options);
// Adds --cold, for commands whose start reads the last run's experts first.
void AddColdFlag(Flags flags, CommonOptions& options);
// --draft. `draft` must outlive the parsing.
Flag AddDraftFlag(Flags flags, DraftOptions& draft);

}  // namespace moestro
