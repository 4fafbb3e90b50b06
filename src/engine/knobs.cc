// SPDX-License-Identifier: MIT
#include "engine/knobs.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

#include "base/bytes.h"
#include "base/format.h"
#include "decide/policy.h"
#include "decide/predictor.h"

namespace moestro {
namespace {

constexpr uint32_t kMostPrefetch = 8;  // layers

Status SetCache(EngineOptions& options, const std::string& value) {
  TRY(options.cache, ParseCacheSize(value));
  return {};
}

Status SetRam(EngineOptions& options, const std::string& value) {
  TRY(options.ram_bytes, ParseBytes(value));
  if (options.ram_bytes > 0) return {};
  return Fail(Errc::kUsage, "a budget of 0 bytes holds nothing");
}

Status SetPolicy(EngineOptions& options, const std::string& value) {
  options.policy.reset();
  if (value == "auto") return {};
  TRY(options.policy, ParsePolicyChoice(value));
  return {};
}

Status SetPredictor(EngineOptions& options, const std::string& value) {
  TRY_STATUS(CheckPredictorName(value));
  options.predictor = value;
  return {};
}

Status SetPrefetch(EngineOptions& options, const std::string& value) {
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, options.prefetch);
  if (error == std::errc{} && stop == end && options.prefetch <= kMostPrefetch) return {};
  return Fail(Errc::kUsage, "'{}' is no number of layers from 0 to {}", value, kMostPrefetch);
}

struct Knob {
  std::string_view name;
  Status (*set)(EngineOptions& options, const std::string& value);
};

constexpr std::array<Knob, 5> kKnobs = {{
    {"cache", SetCache},
    {"ram", SetRam},
    {"policy", SetPolicy},
    {"predictor", SetPredictor},
    {"prefetch", SetPrefetch},
}};

}  // namespace

std::vector<std::string_view> KnownKnobs() {
  std::vector<std::string_view> names;
  for (const Knob& knob : kKnobs) names.push_back(knob.name);
  return names;
}

std::string KnobNames() {
  std::string names;
  for (const Knob& knob : kKnobs) names += Format("{}{}", names.empty() ? "" : ", ", knob.name);
  return names;
}

Status SetKnob(EngineOptions& options, std::string_view name, const std::string& value) {
  const auto* found = std::ranges::find(kKnobs, name, &Knob::name);
  if (found != kKnobs.end()) return found->set(options, value);
  return Fail(Errc::kUsage, "'{}' is no knob; known are {}", name, KnobNames());
}

}  // namespace moestro
