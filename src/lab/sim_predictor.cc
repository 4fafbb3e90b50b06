// SPDX-License-Identifier: MIT
#include "lab/sim_predictor.h"

#include "engine/option_table.h"
#include "learned/path_file.h"

namespace moestro {

void AddPredictorFlags(Flags sim, SimPredictor& predictor) {
  OptionRow row = FindOption("predictor");
  row.usual = "none";
  row.known += "\noracle: always right, the limit";
  sim.AddParsed(std::string(row.flag), std::string(row.value), HelpOf(row),
                [&predictor](const std::string& text) -> Status {
                  if (text != "oracle") TRY_STATUS(CheckPredictorName(text));
                  predictor.name = text;
                  return {};
                });
  sim.Add("--paths", predictor.paths, "what 'moestro profile' learned, for 'paths' and --first")
      .Type("FILE");
  sim.Add("--prefetch", predictor.prefetch,
          "layers looked ahead; 0: predictions only inform the policy (default: as many as "
          "the trace predicts)")
      .Type("N")
      .Between(0U, 8U);
}

Result<PredictorChoice> ChoosePredictor(const SimPredictor& predictor, const TraceInfo& info) {
  PredictorChoice choice{.name = predictor.name};
  if (choice.name != "paths") return choice;
  if (predictor.paths.empty()) {
    return Fail(Errc::kUsage, "--predictor paths needs --paths FILE, made by 'moestro profile'");
  }
  TRY(choice.paths, ReadPathsFor(info.model, predictor.paths));
  return choice;
}

}  // namespace moestro
