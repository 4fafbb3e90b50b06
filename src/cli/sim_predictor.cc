// SPDX-License-Identifier: MIT
#include "cli/sim_predictor.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <utility>

#include "cli/common_flags.h"
#include "decide/path_table.h"
#include "trace/path_file.h"

namespace moestro {

void AddPredictorFlags(CLI::App& sim, SimPredictor& predictor) {
  AddParsedFlag(sim, "--predictor", "NAME",
                PredictorHelp("none") + "\noracle: always right, the limit",
                [&predictor](const std::string& text) -> Status {
                  if (text != "oracle") TRY_STATUS(CheckPredictorName(text));
                  predictor.name = text;
                  return {};
                });
  sim.add_option("--paths", predictor.paths, "what 'moestro profile' learned, for 'paths'")
      ->type_name("FILE");
  sim.add_option("--prefetch", predictor.prefetch,
                 "layers looked ahead; 0: predictions only inform the policy (default: as many as "
                 "the trace predicts)")
      ->type_name("N")
      ->check(CLI::Range(0U, 8U));
}

Result<PredictorChoice> ChoosePredictor(const SimPredictor& predictor, const TraceInfo& info) {
  PredictorChoice choice{.name = predictor.name};
  if (choice.name != "paths") return choice;
  if (predictor.paths.empty()) {
    return Fail(Errc::kUsage, "--predictor paths needs --paths FILE, made by 'moestro profile'");
  }
  TRY(PathFile paths, ReadPaths(predictor.paths));
  TRY_STATUS(CheckPathsFit(
      paths, predictor.paths,
      {.name = info.model,
       .id = info.model_id,
       .shape = {.layers = info.n_layer, .experts = info.n_expert, .used = info.n_used}}));
  choice.paths = std::make_shared<const PathTable>(std::move(paths.table));
  return choice;
}

}  // namespace moestro
