// SPDX-License-Identifier: MIT
// Flags that several commands share, the table of options behind them, and the features that go
// together.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "cli/flags.h"
#include "engine/engine_options.h"
#include "engine/option_table.h"
#include "text/drafts.h"
#include "text/sampler.h"

namespace moestro {

// The engine's options as flags, from their table.

// The heading of options that make the output inexact.
inline constexpr const char* kLossyHeading =
    "Cheaper misses (output is no longer exact; 'moestro eval' measures by how much)";

// Adds a flag for each row, under the heading of its part. `options` must outlive the parsing; the
// rows must outlive this call.
void AddOptionFlags(Flags flags, EngineOptions& options,
                    std::span<const OptionRow> table = OptionTable());
// Adds the flags of one part alone.
void AddOptionFlags(Flags flags, EngineOptions& options, OptionGroup part);

// Excludes --quality together with a flag that --quality chooses. REQUIRES: AddOptionFlags(flags,
// ...) of the table.
void ExcludeChosenByQuality(Flag quality);

// --quality: one value in place of the flags that trade exactness for speed.

struct QualityWish {
  std::optional<double> kl;  // nats per token; nullopt: none
  std::string sweep_file;    // empty: MODEL.sweep.json
};

// REQUIRES: the flags of AddCommonFlags() have been added; some of them exclude this flag. `wish`
// must outlive the parsing.
void AddQualityFlags(Flags flags, QualityWish& wish);

// With a wish: takes the setting from the model's stored sweep. As soon as the engine has planned
// its memory, it prints one line on standard error with the setting and the reason, and marks an
// estimate. Without a wish: changes nothing. Errors: kIo without a sweep, naming the command that
// makes a sweep; those of ReadSweepFor() and ChooseQuality(); kInvalidFile for a knob that
// SetKnob() refuses.
Status ApplyQuality(const QualityWish& wish, const std::string& model, EngineOptions& engine);

// llama.cpp's sampling flags under llama.cpp's names.

// `options` must outlive the parsing. The seed is a common flag.
void AddSamplingFlags(Flags flags, SamplingOptions& options);

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

// Table of the larger features that work together. docs/flags.md has the same table.

struct Features {
  bool little = false;
  bool draft = false;
  bool beams = false;
  bool low = false;
  bool prefer_resident = false;
  bool sequences = false;  // several sequences, in bench
};

// The features that are options of an engine.
Features FeaturesOf(const EngineOptions& engine);

// kUsage: two features do not work together; the message names them and the features that work with
// the first one.
Status CheckTogether(const Features& features);

// kUsage: `command` measures all experts of a token, and --little is on.
Status CheckAllExperts(const char* command, const EngineOptions& engine);

}  // namespace moestro
