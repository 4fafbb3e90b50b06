// SPDX-License-Identifier: MIT
// Big and little: a token is decoded with fewer experts, and with all of them only if the model is
// not sure of what comes next. Values only. Source: MoBiLE.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "core/batch.h"

namespace moestro {

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

}  // namespace moestro
