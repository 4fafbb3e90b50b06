// SPDX-License-Identifier: MIT
#include "cli/common_flags.h"

#include <cstdint>
#include <string>

#include "base/cache_folder.h"
#include "base/number.h"
#include "cli/option_flags.h"

namespace moestro {

namespace {

void AddSeedFlag(Flags flags, CommonOptions& options) {
  flags.AddParsed(
      "-s,--seed", "N", "seed of all random choices; the same seed gives the same output",
      [&options](const std::string& text) -> Status {
        const std::optional<int64_t> value = ParseNumber<int64_t>(text);
        if (!value || *value < -1 || *value > UINT32_MAX) {
          return Fail(Errc::kUsage, "'{}' is not a seed; write 0 to {}, or -1 for a random one",
                      text, UINT32_MAX);
        }
        if (*value >= 0) options.seed = static_cast<uint32_t>(*value);
        return {};
      });
}

}  // namespace

Flag AddCommonFlags(Flags flags, CommonOptions& options) {
  options.engine.weights_folder = CacheFolder();
  options.engine.device.cost_folder = CacheFolder();
  AddOptionFlags(flags, options.engine);
  flags.Group("Output");
  AddSeedFlag(flags, options);
  flags.AddSwitch("--json", options.json, "machine-readable output: one JSON object");
  flags.AddSwitch("-v,--verbose", options.verbose, "say more on standard error");
  return flags.Find("--ctx");
}

void AddColdFlag(Flags flags, CommonOptions& options) {
  options.engine.recall.folder = CacheFolder();
  flags.AddSwitch("--cold", options.engine.recall.is_cold,
                  "do not read first the experts that the last run of this model used, and keep "
                  "none for the next run");
}

Flag AddDraftFlag(Flags flags, DraftOptions& draft) {
  return flags.AddParsed(
      "--draft", "little[:N]|ngram[:N]",
      "guess up to N tokens and check them in one step, as long as that pays; the text stays the "
      "same. little: the model with fewer experts guesses; ngram: the text so far",
      [&draft](const std::string& text) -> Status {
        TRY(draft, ParseDraft(text));
        return {};
      });
}

}  // namespace moestro
