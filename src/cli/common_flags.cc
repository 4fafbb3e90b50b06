// SPDX-License-Identifier: MIT
#include "cli/common_flags.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/cache_files.h"
#include "base/input_file.h"
#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "engine/knobs.h"
#include "learned/beside_model.h"
#include "learned/quality_choice.h"
#include "learned/tunings.h"
#include "model/model_file.h"
#include "text/text_tokens.h"

namespace moestro {
namespace {

const char* HeadingOf(OptionGroup part) {
  switch (part) {
    case OptionGroup::kMachine:
      return "Memory, disk and threads";
    case OptionGroup::kDevice:
      return "Device";
    case OptionGroup::kCopies:
    case OptionGroup::kLossy:
      return kLossyHeading;
    case OptionGroup::kLittle:
      return "Fewer experts where the model is sure (output is no longer exact)";
  }
  return "";
}

Flag AddRow(Flags flags, const OptionRow& row, EngineOptions& options) {
  const std::string names(row.flag);
  if (row.on_off) return flags.AddSwitch(names, row.on_off(options), HelpOf(row));
  return flags.AddParsed(
      names, std::string(row.value), HelpOf(row),
      [&options, set = row.set](const std::string& text) { return set(options, text); });
}

}  // namespace

void AddOptionFlags(Flags flags, EngineOptions& options, std::span<const OptionRow> table) {
  for (const OptionRow& row : table) {
    flags.Group(HeadingOf(row.part));
    const Flag flag = AddRow(flags, row, options);
    if (!row.needs.empty()) flag.Needs(std::string(row.needs));
    if (!row.excludes.empty()) flag.Excludes(std::string(row.excludes));
  }
}

void AddOptionFlags(Flags flags, EngineOptions& options, OptionGroup part) {
  const auto rows = std::ranges::equal_range(OptionTable(), part, {}, &OptionRow::part);
  AddOptionFlags(flags, options, rows);
}

void ExcludeChosenByQuality(Flag quality) {
  for (const OptionRow& row : OptionTable()) {
    if (row.is_by_quality) quality.Excludes(Format("--{}", row.name()));
  }
}

namespace {

Result<double> ParseKl(const std::string& text) {
  const std::optional<double> kl = ParseNumber<double>(text);
  if (kl && *kl >= 0.0) return *kl;
  return Fail(Errc::kUsage, "'{}' is no KL in nats per token; write for example 0.01", text);
}

// The command that makes the missing sweep.
std::string SweepCommand(const std::string& model, const std::string& path,
                         const EngineOptions& engine) {
  std::string budget;
  if (engine.ram_bytes > 0) budget += Format(" --ram {}", engine.ram_bytes);
  if (engine.cache && engine.cache->bytes > 0) budget += Format(" --cache {}", engine.cache->bytes);
  if (engine.cache && engine.cache->bytes == 0)
    budget += Format(" --cache {}%", engine.cache->percent);
  return Format("moestro eval {} --text FILE{} --low FILE --sweep 't1=0.3,0.6,0.9' -o {}", model,
                budget, path);
}

Status UseSetting(const MeasuredSetting& setting, const std::string& path, EngineOptions& engine) {
  for (const KnobSetting& s : setting.knobs) {
    const Status set = SetKnob(engine, s.knob, s.value);
    if (!set) return Fail(Errc::kInvalidFile, "{}: {}", path, set.error().message);
  }
  return {};
}

}  // namespace

void AddQualityFlags(Flags flags, QualityWish& wish) {
  flags.Group(kLossyHeading);
  const Flag quality = flags.AddParsed(
      "--quality", "KL",
      "the fastest setting whose mean KL from the exact run, in nats per token, is at most this; "
      "in place of the flags above, from what 'moestro eval --sweep ... -o' measured",
      [&wish](const std::string& text) -> Status {
        TRY(wish.kl, ParseKl(text));
        return {};
      });
  ExcludeChosenByQuality(quality);
  flags.Add("--sweep-file", wish.sweep_file, "the sweep to choose from (default: MODEL.sweep.json)")
      .Type("FILE")
      .Needs(quality);
}

Status ApplyQuality(const QualityWish& wish, const std::string& model, EngineOptions& engine) {
  if (!wish.kl) return {};
  const std::string path = wish.sweep_file.empty() ? SweepBeside(model) : wish.sweep_file;
  if (IsAbsent(path)) {
    return Fail(Errc::kIo, "--quality needs a sweep of this model, {}; make one with '{}'", path,
                SweepCommand(model, path, engine));
  }
  TRY(const ModelFile file, ModelFile::Open(model));
  TRY(const StoredSweep sweep, ReadSweepFor(file.id, path));
  const Result<QualityChoice> choice = ChooseQuality(sweep.settings, *wish.kl);
  if (!choice) return Fail(choice.error().code, "{}: {}", path, choice.error().message);
  TRY_STATUS(UseSetting(sweep.settings[choice->chosen], path, engine));
  engine.planned = [why = Explain(sweep.settings, *choice, *wish.kl),
                    measured = sweep.expert_bytes](const MemoryPlan& memory) {
    std::string line = Format("quality  {}", why);
    if (IsAnotherBudget(measured, memory.slots)) {
      line += Format("; an estimate: measured with {} for experts, this run has {}",
                     FormatBytes(measured), FormatBytes(memory.slots));
    }
    PrintOnStderr(line + "\n");
  };
  return {};
}

namespace {

// "15043+1.5", "15043-1": token and bias.
Status AddLogitBias(const std::string& text, SamplingOptions& options) {
  const std::string_view all = text;
  const size_t sign = all.find_first_of("+-", 1);
  if (sign != std::string_view::npos) {
    const std::optional<Token> token = ParseNumber<Token>(all.substr(0, sign));
    const auto bias = ParseNumber<float>(all.substr(all[sign] == '+' ? sign + 1 : sign));
    if (token && bias) {
      options.logit_bias.emplace_back(*token, *bias);
      return {};
    }
  }
  return Fail(Errc::kUsage, "'{}' is not a logit bias; write for example 15043+1 or 15043-1.5",
              text);
}

}  // namespace

void AddSamplingFlags(Flags flags, SamplingOptions& options) {
  SamplingOptions& o = options;
  flags.Group("Sampling (names and defaults of llama.cpp)");
  const auto add = [&flags](const std::string& names, auto& value, const std::string& help) {
    flags.Add(names, value, help).ShowDefault();
  };
  add("--temp", o.temp, "temperature; 0 takes the likeliest token");
  add("--top-k", o.top_k, "keep the k likeliest tokens; 0 is off");
  add("--top-p", o.top_p, "keep the likeliest tokens up to this probability; 1 is off");
  add("--min-p", o.min_p, "drop tokens below this share of the best probability; 0 is off");
  add("--typical,--typical-p", o.typical, "locally typical sampling; 1 is off");
  add("--top-nsigma", o.top_n_sigma, "keep tokens within n sigma of the best logit; -1 is off");
  add("--xtc-probability", o.xtc_probability, "chance to exclude top choices; 0 is off");
  add("--xtc-threshold", o.xtc_threshold, "what counts as a top choice");
  add("--dynatemp-range", o.dynatemp_range, "dynamic temperature: temp +- this; 0 is off");
  add("--dynatemp-exp", o.dynatemp_exp, "exponent of the dynamic temperature");
  add("--repeat-last-n", o.repeat_last_n, "tokens looked at for repetition; 0 is off, -1 context");
  add("--repeat-penalty", o.repeat_penalty, "divides repeated tokens' logits; 1 is off");
  add("--presence-penalty", o.presence_penalty, "subtracted from tokens seen before; 0 is off");
  add("--frequency-penalty", o.frequency_penalty, "the same for each time seen; 0 is off");
  add("--dry-multiplier", o.dry_multiplier, "strength of DRY repetition control; 0 is off");
  add("--dry-base", o.dry_base, "growth of DRY's penalty with the length of a repetition");
  add("--dry-allowed-length", o.dry_allowed_length, "longest repetition DRY leaves alone");
  add("--dry-penalty-last-n", o.dry_penalty_last_n, "tokens DRY looks at; 0 is off, -1 context");
  add("--mirostat", o.mirostat, "0 off, 1 Mirostat, 2 Mirostat 2.0");
  add("--mirostat-ent", o.mirostat_ent, "Mirostat's target entropy, tau");
  add("--mirostat-lr", o.mirostat_lr, "Mirostat's learning rate, eta");
  flags.AddSwitch("--ignore-eos", o.ignore_eos, "never end the text by an end token");
  flags.AddParsedEach("--logit-bias", "TOKEN(+/-)BIAS",
                      "adds to the logit of one token (repeatable)",
                      [&o](const std::string& text) { return AddLogitBias(text, o); });
  const Flag grammar = flags.Add("--grammar", o.grammar, "GBNF grammar the text must follow");
  flags
      .AddParsed("--grammar-file", "FILE", "the grammar from a file",
                 [&o](const std::string& path) -> Status {
                   TRY(o.grammar, ReadSmallText(path));
                   return {};
                 })
      .Excludes(grammar);
}

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
      "--draft", "auto|little[:N]|ngram[:N]|mtp[:N]",
      "guess up to N tokens and check them in one step, as long as that pays; the text stays the "
      "same. little: the model with fewer experts guesses; ngram: the text so far; mtp: the layer "
      "of the file that predicts further tokens; auto: mtp once it is expected to pay, or ngram",
      [&draft](const std::string& text) -> Status {
        TRY(draft, ParseDraft(text));
        return {};
      });
}

namespace {

struct Feature {
  std::string_view flag;
  bool Features::* is_on;
};

constexpr Feature kLittle{"--little", &Features::little};
constexpr Feature kDraft{"--draft", &Features::draft};
constexpr Feature kBeams{"--beams", &Features::beams};
constexpr Feature kLow{"--low", &Features::low};
constexpr Feature kPreferResident{"--prefer-resident", &Features::prefer_resident};
constexpr Feature kSequences{"--sequences", &Features::sequences};

constexpr std::array kAll = {kLittle, kDraft, kBeams, kLow, kPreferResident, kSequences};

struct Pair {
  Feature a;
  Feature b;
};
constexpr std::array kWorks = {
    Pair{kLittle, kLow},    Pair{kLittle, kPreferResident},    Pair{kLittle, kSequences},
    Pair{kBeams, kLow},     Pair{kBeams, kPreferResident},     Pair{kLow, kPreferResident},
    Pair{kLow, kSequences}, Pair{kPreferResident, kSequences},
};

bool Works(const Feature& a, const Feature& b) {
  for (const Pair& pair : kWorks) {
    if ((pair.a.flag == a.flag && pair.b.flag == b.flag) ||
        (pair.a.flag == b.flag && pair.b.flag == a.flag)) {
      return true;
    }
  }
  return false;
}

std::string Partners(const Feature& feature) {
  std::string partners;
  for (const Feature& other : kAll) {
    if (!Works(feature, other)) continue;
    partners += Format("{}{}", partners.empty() ? "" : ", ", other.flag);
  }
  return partners.empty() ? "none of these" : partners;
}

}  // namespace

Features FeaturesOf(const EngineOptions& engine) {
  return {.little = engine.little.is_on(),
          .low = !engine.low.empty(),
          .prefer_resident = engine.lossy.prefer_resident > 0.0};
}

Status CheckAllExperts(const char* command, const EngineOptions& engine) {
  if (!engine.little.is_on()) return {};
  return Fail(Errc::kUsage, "'{}' measures all experts of a token; leave out --little", command);
}

Status CheckTogether(const Features& features) {
  for (size_t i = 0; i < kAll.size(); ++i) {
    for (size_t j = i + 1; j < kAll.size(); ++j) {
      const bool are_on = features.*kAll[i].is_on && features.*kAll[j].is_on;
      if (!are_on || Works(kAll[i], kAll[j])) continue;
      return Fail(Errc::kUsage, "{} and {} do not work together; {} works with {}", kAll[i].flag,
                  kAll[j].flag, kAll[i].flag, Partners(kAll[i]));
    }
  }
  return {};
}

}  // namespace moestro
