// SPDX-License-Identifier: MIT
#include "cli/quality_flags.h"

#include <cmath>

#include "base/bytes.h"
#include "base/format.h"
#include "base/number.h"
#include "base/small_file.h"
#include "base/visible.h"
#include "cli/option_flags.h"
#include "engine/knobs.h"
#include "learned/beside_model.h"
#include "learned/quality_choice.h"
#include "learned/sweep_file.h"
#include "model/model_file.h"

namespace moestro {
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

}  // namespace moestro
