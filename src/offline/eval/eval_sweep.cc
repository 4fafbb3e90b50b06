// SPDX-License-Identifier: MIT
#include "offline/eval/eval_sweep.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "engine/engine_options.h"
#include "engine/knobs.h"

namespace moestro {
namespace {

constexpr size_t kMostCombinations = 1000;

// The parts of `text` between separators, at least one.
std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

double KlOf(const EvalPoint& point) { return point.figures.against->kl_mean.value; }

}  // namespace

Result<std::vector<KnobSettings>> ParseSweep(std::string_view text) {
  std::vector<KnobSettings> all = {{}};
  for (const std::string& part : Split(text, ';')) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos) {
      return Fail(Errc::kUsage, "'{}' is no sweep; write for example cache=25%,50%", part);
    }
    const std::string knob = part.substr(0, equals);
    if (std::ranges::contains(all.front(), knob, &KnobSetting::knob)) {
      return Fail(Errc::kUsage, "{} comes twice; write all its values once: {}=A,B", knob, knob);
    }
    std::vector<KnobSettings> combined;
    const std::vector<std::string> values = Split(std::string_view(part).substr(equals + 1), ',');
    if (all.size() * values.size() > kMostCombinations) {
      return Fail(Errc::kUsage, "a sweep of more than {} combinations; leave some values out",
                  kMostCombinations);
    }
    for (const std::string& value : values) {
      EngineOptions unused;
      TRY_STATUS(SetKnob(unused, knob, value));
    }
    for (const KnobSettings& before : all) {
      for (const std::string& value : values) {
        combined.push_back(before);
        combined.back().push_back({.knob = knob, .value = value});
      }
    }
    all = std::move(combined);
  }
  return all;
}

EngineOptions WithSettings(EngineOptions options, const KnobSettings& settings) {
  for (const KnobSetting& s : settings) CHECK(SetKnob(options, s.knob, s.value).has_value());
  return options;
}

EvalPoint ToPoint(KnobSettings settings, const EvalResult& result) {
  const PhaseStats& decode = result.report.stats.decode;
  return {.settings = std::move(settings),
          .figures = result.figures,
          .bytes_per_token = result.bytes_per_token(),
          .hit_rate = decode.hit_rate(),
          .decode_tps = decode.tokens_per_second(),
          .percent_of_bound =
              DecodeBound(result.report.stats, result.report.probes).percent(decode.seconds)};
}

MeasuredSetting ToMeasured(const EngineOptions& base, const KnobSettings& settings,
                           const EvalResult& result) {
  const EngineOptions options = WithSettings(base, settings);
  MeasuredSetting measured{.knobs = settings};
  for (KnobSetting& changed : ChangedKnobs(options)) {
    if (std::ranges::contains(settings, changed.knob, &KnobSetting::knob)) continue;
    measured.knobs.push_back(std::move(changed));
  }
  for (KnobSetting& s : measured.knobs) {
    const bool is_file = (s.knob == "low" || s.knob == "norms") && !s.value.empty();
    if (is_file) s.value = std::filesystem::absolute(s.value).lexically_normal().string();
  }
  const EvalFigures::Against& against = *result.figures.against;
  measured.is_exact = options.is_exact();
  measured.kl_mean = against.kl_mean.value;
  if (std::isfinite(against.kl_mean.error)) measured.kl_se = against.kl_mean.error;
  measured.decode_tps = result.report.stats.decode.tokens_per_second();
  measured.bytes_per_token = result.bytes_per_token();
  measured.perplexity = result.figures.perplexity.value;
  measured.slots = result.report.memory.n_slots;
  measured.low_slots = result.report.memory.n_low_slots;
  return measured;
}

std::vector<bool> ParetoFront(const std::vector<EvalPoint>& points) {
  std::vector<bool> front;
  for (const EvalPoint& point : points) {
    front.push_back(std::ranges::none_of(points, [&](const EvalPoint& other) {
      const bool is_as_good = other.decode_tps >= point.decode_tps && KlOf(other) <= KlOf(point);
      return is_as_good && (other.decode_tps > point.decode_tps || KlOf(other) < KlOf(point));
    }));
  }
  return front;
}

}  // namespace moestro
