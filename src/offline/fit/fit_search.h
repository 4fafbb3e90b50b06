// SPDX-License-Identifier: MIT
// A width for each expert of a model, fitted to a tolerance of loss on a text (EdgeMoE): all
// experts at each width, the importance of each, then the least important ones lower until the
// tolerance is met. docs/fitted-format.md describes the file, docs/fit.md the search.
#pragma once

#include <ggml.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"
#include "base/work_limit.h"
#include "engine/engine.h"
#include "offline/eval/eval_stats.h"
#include "offline/eval/eval_text.h"
#include "offline/fit/fit_order.h"
#include "offline/fit/write_fitted.h"

namespace moestro {

// Rankings of the experts.
enum class FitRanking : uint8_t {
  kNone,       // nothing to rank: all experts have one width
  kMeasured,   // loss when the expert alone goes lower; experts without a measurement go last
  kUse,        // measured, but within the error; so popularity x norm
  kEstimated,  // popularity x norm x error of the weights, which a sample bears out
};

struct FitRequest {
  std::string model;
  EngineOptions engine;  // ctx is the window
  TextRequest text;
  FitTolerance tolerance;
  std::vector<ggml_type> widths;
  std::string imatrix = {};  // importances of the columns (imatrix_file.h); empty: all alike
  std::string scratch = {};  // folder; empty: see ScratchFolder()
  OutputPath path;           // of the fitted model
  bool overwrite = false;    // replace an existing one
  // Up to this number all experts are measured. Of more experts a sample is measured, and if the
  // sample does not confirm the estimate (RankCorrelation()), others follow for so many minutes.
  uint32_t measure_most = 1000;
  double measure_minutes = 60.0;
  double least_correlation = kLeastCorrelation;
  Clock clock = SteadySeconds;
  Progress progress = {};                             // may be empty
  std::function<void(const std::string&)> note = {};  // a line for the user; may be empty
};

struct FitReport {
  struct Uniform {
    SizedWidth width;
    std::optional<Estimate> loss;  // empty: not measured, a larger one lost too much already
  };
  std::vector<Uniform> uniform;  // largest first
  Width high;
  Width low;
  uint32_t layers = 0;
  uint32_t experts = 0;  // of a layer
  FitRanking ranking = FitRanking::kNone;
  std::vector<std::optional<Estimate>> importance;  // KL, [layer][expert]; empty: not measured
  std::vector<double> popularity_norm;              // [layer][expert]
  double noise_share = 0.0;                         // see NoiseShare()
  // Correlation of the estimate with the measured values of a sample; empty: nothing was estimated.
  std::optional<double> rank_correlation;
  uint64_t n_measured() const {
    return static_cast<uint64_t>(
        std::ranges::count_if(importance, [](const auto& each) { return each.has_value(); }));
  }
  uint64_t moved = 0;  // experts at the lower width
  std::string widths;  // as FitHeader::widths
  Estimate loss;       // loss of the result on the windows that were held out to choose `moved` by
  // Loss of the result on windows that no choice used; empty: the text is too short.
  std::optional<Estimate> checked;
  uint64_t calibration_tokens = 0;
  uint64_t held_out_tokens = 0;
  uint64_t checked_tokens = 0;
  uint64_t evaluated = 0;     // tokens evaluated in this run
  uint64_t source_bytes = 0;  // of the experts
  uint64_t expert_bytes = 0;  // of the result's
  uint64_t file_bytes = 0;
};

// Searches, then writes the file. Measurements and copies stay in the scratch folder until the file
// is written; a later call with the same request continues with them. Errors: those of the engine,
// the text and the writers; kInvalidRequest when no expert can go lower (names the tolerance that
// can be met); kIo before anything is measured if the output may not be written.
Result<FitReport> FitWidths(const FitRequest& request);

}  // namespace moestro
