// SPDX-License-Identifier: MIT
#include "cli/lossy_flags.h"

#include <string>

#include "base/format.h"
#include "decide/layer/importance/importance.h"
#include "engine/knobs.h"

namespace moestro {
namespace {

std::string ImportanceHelp() {
  std::string help = "what makes an expert important to a row (default: score):";
  for (const ImportanceInfo& info : KnownImportances()) {
    help += Format("\n{}: {}", info.name, info.summary);
  }
  return help;
}

}  // namespace

void AddLittleFlags(Flags flags, LittleOptions& little) {
  flags.Group("Fewer experts where the model is sure (output is no longer exact)");
  const Flag first = flags.AddParsed(
      "--little", "N|half",
      "decode each token with N experts first, and with all of them if it is not sure of the next",
      [&little](const std::string& text) { return SetLittleUsed(little, text); });
  flags
      .Add("--gamma", little.gamma,
           "it is sure if its largest probability is above this; 0: always, 1: never")
      .Between(0.0, 1.0)
      .ShowDefault()
      .Needs(first);
  flags
      .AddParsed("--little-misses", "read|low|drop",
                 "what the first pass does about an expert that is not in memory (default: read)",
                 [&little](const std::string& text) -> Status {
                   TRY(little.misses, ParseMisses(text));
                   return {};
                 })
      .Needs(first);
}

void AddLossyFlags(Flags flags, EngineOptions& options) {
  flags.Group("Cheaper misses (output is no longer exact; 'moestro eval' measures by how much)");
  flags
      .Add("--low", options.low,
           "copies of the experts in a lower type, made by 'moestro quantize', or another GGUF of "
           "the same model")
      .Type("FILE");
  flags.Add("--low-share", options.low_share, "share of the experts' memory for low copies")
      .Between(0.0, 1.0)
      .ShowDefault();
  flags
      .Add("--norms", options.norms,
           "what 'moestro profile' measured, for --importance score-norm (default: MODEL.norms)")
      .Type("FILE");
  AddLossyFlags(flags, options.lossy);
}

void AddLossyFlags(Flags flags, LossyOptions& lossy) {
  flags
      .Add("--t1", lossy.t1,
           "a missing expert is read in full up to this unimportance, from 0 to 1 (default with "
           "--low: 0.6)")
      .Between(0.0, 1.0);
  flags
      .Add("--t2", lossy.t2,
           "as a low copy up to this one, and skipped above it (default with --low: 0.9)")
      .Between(0.0, 1.0);
  flags.AddParsed("--importance", "NAME", ImportanceHelp(),
                  [&lossy](const std::string& text) -> Status {
                    TRY_STATUS(CheckImportanceName(text));
                    lossy.importance = text;
                    return {};
                  });
  flags
      .Add("--drop-below", lossy.drop_below,
           "a missing expert with a smaller share of its row's weight is not read")
      .Between(0.0, 1.0);
  flags
      .Add("--prefer-resident", lossy.prefer_resident,
           "an absent expert gives way to a resident one whose score is lower by at most this "
           "share of the row's range")
      .Between(0.0, 1.0);
  flags.Add("--keep", lossy.keep, "best experts of a row that never give way").ShowDefault();
  flags.AddSwitch("--rescale,!--no-rescale", lossy.rescales,
                  "the other weights grow when an expert is left out (default: no)");
  flags.AddSwitch("--upgrade", lossy.upgrades,
                  "read the full copy of an expert that often runs as a low one");
  flags.AddParsed(
      "--lossy-mode", "NAME",
      "reproducible: choices depend on tokens and slots alone; opportunistic: on what is there "
      "(default: reproducible)",
      [&lossy](const std::string& text) -> Status {
        TRY(lossy.is_reproducible, ParseLossyMode(text));
        return {};
      });
}

}  // namespace moestro
