// SPDX-License-Identifier: MIT
// Choices of a user that trade exactness for speed. Values only. The defaults give up nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace moestro {

struct LossyOptions {
  // Thresholds for missing experts, by their unimportance s (0 for the most important one of a row,
  // below 1 for the others): s <= t1 reads the model's own copy, s <= t2 the low one, else the
  // expert is skipped. Source: HOBBIT.
  // nullopt: 0.6 and 0.9 with low copies, else 1.
  std::optional<double> t1 = {};
  std::optional<double> t2 = {};
  std::string importance = "score";  // see KnownImportances()
  // A missing expert that weighs less than this share of its row is not read. 0: off.
  double drop_below = 0.0;
  // Lambda: an absent expert gives way to a resident one whose router score is at most this share
  // of the row's range of scores lower. 0: off. Source: cache-aware routing.
  double prefer_resident = 0.0;
  uint32_t keep = 1;  // the best experts of a row, which never give way
  // Weights of the remaining experts grow to the row's sum after a skip. Otherwise they stay.
  bool rescales = false;
  // After low uses, the own copy of an expert is read when the disk has no other reads.
  bool upgrades = false;
  // Choices depend on tokens and numbers of slots alone, never on timing.
  bool is_reproducible = true;

  double t1_of(bool has_low) const { return t1.value_or(has_low ? 0.6 : 1.0); }
  double t2_of(bool has_low) const { return t2.value_or(has_low ? 0.9 : 1.0); }
  bool is_exact(bool has_low) const {
    return t1_of(has_low) >= 1.0 && drop_below <= 0.0 && prefer_resident <= 0.0;
  }
  bool operator==(const LossyOptions&) const = default;
};

// kUsage, naming the values: t1 above t2, thresholds without low copies. REQUIRES: shares are from
// 0 to 1 and the importance is known.
Status CheckLossy(const LossyOptions& options, bool has_low);

}  // namespace moestro
