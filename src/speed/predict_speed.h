// SPDX-License-Identifier: MIT
// Predicts the speed of a model on a machine before the model is fetched: the simulator replays
// routing with the habits of known models, on a machine of measured speeds. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/machine_rates.h"
#include "core/model_id.h"
#include "learned/seen_caching.h"
#include "native/plan/fit.h"
#include "speed/model_needs.h"
#include "speed/remote_price.h"
#include "trace/trace.h"

namespace moestro {

// Tokens per second.
struct SpeedRange {
  double low = 0.0;
  double high = 0.0;
  double middle() const;  // the geometric mean
  bool contains(double speed) const { return speed >= low && speed <= high; }
};

struct BudgetSpeed {
  Fit fit = {};
  SpeedRange decode = {};  // behind the first hundred tokens
  SpeedRange prompt = {};  // of 512 tokens
};

// Largest factor between the ends of a range.
inline constexpr double kWidest = 2.0;
// Largest factor for a model that has run, for a family whose routing has been recorded, and where
// all experts are in memory.
inline constexpr double kWidestOfKnown = 1.5;

// Seconds of a decoded token with all experts in memory. kInvalidRequest, naming it: a type of
// weights that was not measured.
Result<double> ResidentSeconds(const ModelNeeds& needs, const MachineRates& rates);

// Predicts for one machine and all files of one model.
class SpeedPredictor {
 public:
  // `seen`: the misses of an earlier run of the model; nullopt: no run is known. `rates` outlives
  // it. kInvalidRequest: the disk was not measured; kInvalidRequest and kUnsupported: a shape that
  // no model has.
  static Result<SpeedPredictor> Create(const MoeShape& shape, std::string_view family,
                                       const std::optional<SeenCaching>& seen,
                                       const MachineRates& rates);

  // The speed for each fit. Errors: those of ResidentSeconds(). REQUIRES: needs of that shape.
  Result<std::vector<BudgetSpeed>> Predict(const ModelNeeds& needs,
                                           std::span<const Fit> fits) const;
  // Gain by hosts of so many bytes in a fit. Unknown routing counts as recorded routing. Errors:
  // those of ResidentSeconds(). REQUIRES: needs.row_bytes.
  Result<RemotePrice> PriceHosts(const ModelNeeds& needs, const Fit& fit,
                                 const std::vector<uint64_t>& host_bytes,
                                 const Network& network) const;

 private:
  SpeedPredictor(const MachineRates& rates, Trace recorded, std::optional<Trace> even);

  const MachineRates* rates_;
  Trace recorded_;
  std::optional<Trace> even_;  // if the model's routing is not known
};

}  // namespace moestro
