// SPDX-License-Identifier: MIT
#include "engine/knobs.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

#include "base/bytes.h"
#include "base/format.h"
#include "decide/importance/importance.h"
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

// A number from 0 to 1.
Result<double> ParseShare(const std::string& value) {
  double share = 0.0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, share);
  if (error == std::errc{} && stop == end && share >= 0.0 && share <= 1.0) return share;
  return Fail(Errc::kUsage, "'{}' is no number from 0 to 1", value);
}

template <class T>
Status SetShare(T& share, const std::string& value) {
  TRY(share, ParseShare(value));
  return {};
}

Status SetImportance(EngineOptions& options, const std::string& value) {
  TRY_STATUS(CheckImportanceName(value));
  options.lossy.importance = value;
  return {};
}

Status SetKeep(EngineOptions& options, const std::string& value) {
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, options.lossy.keep);
  if (error == std::errc{} && stop == end) return {};
  return Fail(Errc::kUsage, "'{}' is no number of experts", value);
}

Status SetLow(EngineOptions& options, const std::string& value) {
  options.low = value;
  return {};
}

struct Knob {
  std::string_view name;
  Status (*set)(EngineOptions& options, const std::string& value);
};

using Text = const std::string&;
constexpr std::array<Knob, 13> kKnobs = {{
    {"cache", SetCache},
    {"ram", SetRam},
    {"policy", SetPolicy},
    {"predictor", SetPredictor},
    {"prefetch", SetPrefetch},
    {"low", SetLow},
    {"low-share", [](EngineOptions& o, Text v) { return SetShare(o.low_share, v); }},
    {"t1", [](EngineOptions& o, Text v) { return SetShare(o.lossy.t1, v); }},
    {"t2", [](EngineOptions& o, Text v) { return SetShare(o.lossy.t2, v); }},
    {"importance", SetImportance},
    {"drop-below", [](EngineOptions& o, Text v) { return SetShare(o.lossy.drop_below, v); }},
    {"prefer-resident",
     [](EngineOptions& o, Text v) { return SetShare(o.lossy.prefer_resident, v); }},
    {"keep", SetKeep},
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
