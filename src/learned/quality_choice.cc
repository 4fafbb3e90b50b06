// SPDX-License-Identifier: MIT
#include "learned/quality_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text.h"

namespace moestro {
namespace {

constexpr double kErrors = 2.0;       // standard errors of safety
constexpr double kSameBudget = 0.02;  // share

std::string NameOf(const MeasuredSetting& setting) {
  if (setting.is_exact) {
    return setting.knobs.empty() ? "exact" : Format("exact with {}", ToText(setting.knobs));
  }
  return setting.knobs.empty() ? "the defaults" : ToText(setting.knobs);
}

std::string KlText(const MeasuredSetting& setting) {
  if (setting.is_exact) return "KL 0";
  if (!setting.kl_se) return Format("KL {:.2g} with an unknown error", setting.kl_mean);
  return Format("KL {:.2g} ± {:.1g}", setting.kl_mean, *setting.kl_se);
}

bool IsFaster(const MeasuredSetting& a, const MeasuredSetting& b) {
  if (a.decode_tps != b.decode_tps) return a.decode_tps > b.decode_tps;
  return KlBound(a) < KlBound(b);
}

// Sets `best` to `i` if no earlier setting is better.
void KeepFaster(std::span<const MeasuredSetting> settings, size_t i, std::optional<size_t>& best) {
  if (!best || IsFaster(settings[i], settings[*best])) best = i;
}

}  // namespace

double KlBound(const MeasuredSetting& setting) {
  if (setting.is_exact) return 0.0;
  if (!setting.kl_se) return std::numeric_limits<double>::infinity();
  return setting.kl_mean + kErrors * *setting.kl_se;
}

Result<QualityChoice> ChooseQuality(std::span<const MeasuredSetting> settings, double wish) {
  std::optional<size_t> chosen;
  for (size_t i = 0; i < settings.size(); ++i) {
    if (KlBound(settings[i]) <= wish) KeepFaster(settings, i, chosen);
  }
  if (!chosen) {
    double least = std::numeric_limits<double>::infinity();
    for (const MeasuredSetting& s : settings) least = std::min(least, KlBound(s));
    return Fail(Errc::kInvalidRequest, "none of {} settings is within a KL of {}{}",
                settings.size(), wish,
                std::isfinite(least) ? Format("; the best is sure to be within {:.2g}", least)
                                     : "; their text was too short to know their errors");
  }
  QualityChoice choice{.chosen = *chosen};
  for (size_t i = 0; i < settings.size(); ++i) {
    if (i == *chosen) continue;
    if (KlBound(settings[i]) <= wish) {
      KeepFaster(settings, i, choice.runner_up);
    } else if (settings[i].decode_tps > settings[*chosen].decode_tps) {
      KeepFaster(settings, i, choice.beyond);
    }
  }
  return choice;
}

std::string Explain(std::span<const MeasuredSetting> settings, const QualityChoice& choice,
                    double wish) {
  const MeasuredSetting& chosen = settings[choice.chosen];
  std::string text =
      Format("{}: {:.1f} tok/s, {} measured, at most {:.2g} of the {} wished", NameOf(chosen),
             chosen.decode_tps, KlText(chosen), KlBound(chosen), wish);
  if (choice.runner_up) {
    const MeasuredSetting& next = settings[*choice.runner_up];
    text += Format("; next within it: {}, {:.1f} tok/s", NameOf(next), next.decode_tps);
  }
  if (choice.beyond) {
    const MeasuredSetting& beyond = settings[*choice.beyond];
    text += Format("; beyond it: {}, {:.1f} tok/s, {}", NameOf(beyond), beyond.decode_tps,
                   KlText(beyond));
  }
  return text;
}

bool IsAnotherBudget(uint64_t measured, uint64_t bytes) {
  const auto then = static_cast<double>(measured);
  return std::abs(static_cast<double>(bytes) - then) > kSameBudget * then;
}

}  // namespace moestro
