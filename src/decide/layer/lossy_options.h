// SPDX-License-Identifier: MIT
// Choices of a user that trade exactness for speed, whether a token decoded with fewer experts
// stays, and counts of what was given up.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/counters.h"
#include "base/result.h"
#include "core/batch.h"

namespace moestro {

// Values only. The defaults give up nothing.
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

// Big and little: a token is decoded with fewer experts, and with all of them only if the model is
// not sure of what comes next. Values only. Source: MoBiLE.

struct LittleOptions {
  // K', experts of a token in the first pass; nullopt: no first pass, every token gets all K.
  std::optional<uint32_t> n_used = {};
  bool is_half = false;  // instead of a number: half of the model's K
  // A token stays if its largest probability is above this. 0: all stay; 1: none does, and the
  // first pass is left out.
  double gamma = 0.7;
  // Treatment of missing experts that only the first pass needs.
  Misses misses = Misses::kRead;
  // Instead of gamma: this share of the tokens is decoded again, those with the smallest largest
  // probability of the run so far. For measurements.
  std::optional<double> fallback_share = {};

  bool is_on() const { return n_used.has_value() || is_half; }
  bool operator==(const LittleOptions&) const = default;
};

// kUsage, naming the value: K' is not from 1 to K - 1, low copies are requested and the model has
// none. Gives K'. REQUIRES: gamma is from 0 to 1.
Result<uint32_t> CheckLittle(const LittleOptions& options, uint32_t n_used, bool has_low);

// K' as text: a number, "half", or "off"; kUsage otherwise.
Status SetLittleUsed(LittleOptions& options, const std::string& text);
std::string ToText(const LittleOptions& options);

// "read", "low", "drop"; kUsage otherwise.
Result<Misses> ParseMisses(std::string_view text);
std::string_view ToString(Misses misses);

// Decides whether a token that was decoded with fewer experts stays. Pure. Source: MoBiLE.

// The largest softmax probability of a row's logits, before any sampling; NaN if one of them is.
double Confidence(std::span<const float> logits);

class LittleJudge {
 public:
  explicit LittleJudge(const LittleOptions& options) : options_(options) {}

  // Whether the next row's token stays.
  bool Keeps(double confidence);

 private:
  LittleOptions options_;
  // With fallback_share: all confidences so far, ascending, and the number of tokens that did not
  // stay.
  std::vector<double> seen_;
  double again_ = 0.0;
};

// Counts of inexact choices in a run, for reports.

// Effects of lossy plans, in experts of a layer and step.
struct LossCounts {
  uint64_t missing = 0;   // the model's own copy was not in memory
  uint64_t low = 0;       // of the missing ones, a low copy ran
  uint64_t skipped = 0;   // left out as unimportant
  uint64_t dropped = 0;   // left out because its weight was small
  uint64_t replaced = 0;  // choices of rows that gave way to resident experts
  uint64_t upgrades = 0;  // own copies read after low ones ran

  bool operator==(const LossCounts&) const = default;

  static constexpr void Visit(auto&& visit) {
    visit(&LossCounts::missing, CounterText{.json = "missing", .sim = "missing"});
    visit(&LossCounts::low, CounterText{.json = "low", .sim = "low"});
    visit(&LossCounts::skipped, CounterText{.json = "skipped", .sim = "skipped"});
    visit(&LossCounts::dropped, CounterText{.json = "dropped", .sim = "dropped"});
    visit(&LossCounts::replaced, CounterText{.json = "replaced", .sim = "replaced"});
    visit(&LossCounts::upgrades, CounterText{.json = "upgrades"});
  }
};
static_assert(CountsAllOf<LossCounts>());

}  // namespace moestro
