// SPDX-License-Identifier: MIT
// Chooses the fastest of measured settings that loses no more than a user allows. Values only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/run_identity.h"

namespace moestro {

struct MeasuredSetting {
  KnobSettings knobs;
  bool is_exact = false;             // an exact setting: its KL counts as 0
  double kl_mean = 0.0;              // from the exact run, nats per token
  std::optional<double> kl_se = {};  // nullopt: the text was too short to know
  double decode_tps = 0.0;           // tokens per second
  double bytes_per_token = 0.0;
  double perplexity = 0.0;
  uint64_t slots = 0;  // of the model's own copies
  uint64_t low_slots = 0;
};

// All measurements for one model and one budget.
struct StoredSweep {
  ModelId model;
  uint64_t ram_bytes = 0;     // peak of the whole process
  uint64_t expert_bytes = 0;  // share of ram_bytes for all expert slots
  std::vector<MeasuredSetting> settings;
};

// Bound below which the mean KL stays with some certainty: two standard errors above the measured
// mean. Infinite if the error is not known.
double KlBound(const MeasuredSetting& setting);

// Indices into the settings.
struct QualityChoice {
  size_t chosen = 0;
  std::optional<size_t> runner_up = {};  // the fastest other setting within the wish
  // The fastest setting beyond the wish that is faster than the chosen one.
  std::optional<size_t> beyond = {};
};

// Chooses the setting with the most tokens per second whose KlBound() is at most `wish`; of equally
// fast ones that with the smaller bound. kInvalidRequest, naming the smallest bound, if no setting
// is within the wish.
Result<QualityChoice> ChooseQuality(std::span<const MeasuredSetting> settings, double wish);

// One line with the chosen setting, its measured values, and the settings that it was preferred to.
std::string Explain(std::span<const MeasuredSetting> settings, const QualityChoice& choice,
                    double wish);

// True if speed and loss measured with `measured` bytes of slots are no more than an estimate for
// `bytes` of them: over 2 % apart.
bool IsAnotherBudget(uint64_t measured, uint64_t bytes);

}  // namespace moestro
