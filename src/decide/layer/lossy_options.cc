// SPDX-License-Identifier: MIT
#include "decide/layer/lossy_options.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/number.h"
#include "base/text.h"

namespace moestro {
Status CheckLossy(const LossyOptions& options, bool has_low) {
  const double t1 = options.t1_of(has_low);
  const double t2 = options.t2_of(has_low);
  if (!has_low && (options.t1 || options.t2)) {
    return Fail(Errc::kUsage,
                "--t1 and --t2 choose between copies; name the low ones with --low FILE, which "
                "'moestro quantize' makes");
  }
  if (t1 > t2) {
    return Fail(Errc::kUsage, "--t1 {} is above --t2 {}: nothing would be read in low precision",
                t1, t2);
  }
  return {};
}

Result<uint32_t> CheckLittle(const LittleOptions& options, uint32_t n_used, bool has_low) {
  const uint32_t little = options.is_half ? n_used / 2 : options.n_used.value_or(0);
  if (little == 0 || little >= n_used) {
    return Fail(Errc::kUsage,
                "--little {}: this model uses {} experts for a token; its little pass can use {}",
                little, n_used, n_used > 1 ? Format("1 to {}", n_used - 1) : "no fewer");
  }
  if (options.misses == Misses::kLow && !has_low) {
    return Fail(Errc::kUsage, "--little-misses low needs low copies; give --low FILE");
  }
  return little;
}

Status SetLittleUsed(LittleOptions& options, const std::string& text) {
  options.n_used.reset();
  options.is_half = text == "half";
  if (options.is_half || text == "off") return {};
  options.n_used = ParseNumber<uint32_t>(text);
  if (options.n_used) return {};
  return Fail(Errc::kUsage, "'{}' is no number of experts; write one, half or off", text);
}

std::string ToText(const LittleOptions& options) {
  if (options.is_half) return "half";
  return options.n_used ? Format("{}", *options.n_used) : "off";
}

Result<Misses> ParseMisses(std::string_view text) {
  for (const Misses misses : {Misses::kRead, Misses::kLow, Misses::kDrop}) {
    if (text == ToString(misses)) return misses;
  }
  return Fail(Errc::kUsage, "'{}' is no answer to a miss; write read, low or drop", text);
}

std::string_view ToString(Misses misses) {
  switch (misses) {
    case Misses::kRead:
      return "read";
    case Misses::kLow:
      return "low";
    case Misses::kDrop:
      return "drop";
  }
  return "";
}

double Confidence(std::span<const float> logits) {
  float largest = -std::numeric_limits<float>::infinity();
  for (const float x : logits) largest = std::max(largest, x);
  double sum = 0.0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x - largest));
  return 1.0 / sum;
}

bool LittleJudge::Keeps(double confidence) {
  if (!options_.fallback_share) return confidence > options_.gamma;
  if (std::isnan(confidence)) return false;
  const auto place = std::ranges::lower_bound(seen_, confidence);
  const auto smaller = static_cast<double>(place - seen_.begin());
  const double rank = (smaller + 0.5) / static_cast<double>(seen_.size() + 1);
  // Confidences drift, so a deficit of the share is made up for within some tokens.
  constexpr double kTokens = 4.0;
  const double owed = *options_.fallback_share * static_cast<double>(seen_.size() + 1) - again_;
  seen_.insert(place, confidence);
  const bool keeps = rank >= *options_.fallback_share + owed / kTokens;
  again_ += keeps ? 0.0 : 1.0;
  return keeps;
}

}  // namespace moestro
