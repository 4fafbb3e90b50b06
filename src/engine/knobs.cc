// SPDX-License-Identifier: MIT
#include "engine/knobs.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <system_error>

#include "base/bytes.h"
#include "base/format.h"
#include "decide/ahead/predictor.h"
#include "decide/layer/importance/importance.h"
#include "decide/slots/policy.h"

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

Status SetNorms(EngineOptions& options, const std::string& value) {
  options.norms = value;
  return {};
}

Status SetLittle(EngineOptions& options, const std::string& value) {
  return SetLittleUsed(options.little, value);
}

Status SetSwitch(bool& is_on, const std::string& value) {
  if (value != "0" && value != "1") return Fail(Errc::kUsage, "'{}' is neither 0 nor 1", value);
  is_on = value == "1";
  return {};
}

using Text = const std::string&;
using KnobValue = std::optional<std::string>;  // nullopt: not set

KnobValue TextOf(const std::optional<double>& share) {
  if (!share) return std::nullopt;
  return Format("{}", *share);
}

struct Knob {
  std::string_view name;
  Status (*set)(EngineOptions& options, const std::string& value);
  KnobValue (*get)(const EngineOptions& options);  // nullptr: it sets the budget
};

using In = const EngineOptions&;
constexpr std::array<Knob, 21> kKnobs = {{
    {"cache", SetCache, nullptr},
    {"ram", SetRam, nullptr},
    {"policy", SetPolicy,
     [](In o) { return KnobValue(o.policy ? ToText(*o.policy) : std::string("auto")); }},
    {"predictor", SetPredictor, [](In o) { return KnobValue(o.predictor); }},
    {"prefetch", SetPrefetch, [](In o) { return KnobValue(Format("{}", o.prefetch)); }},
    {"kv-type",
     [](EngineOptions& o, Text v) -> Status {
       TRY(o.kv_type, ParseKvType(v));
       return {};
     },
     [](In o) { return KnobValue(NameOf(o.kv_type)); }},
    {"low", SetLow, [](In o) { return KnobValue(o.low); }},
    {"low-share", [](EngineOptions& o, Text v) { return SetShare(o.low_share, v); },
     [](In o) { return TextOf(o.low_share); }},
    {"t1", [](EngineOptions& o, Text v) { return SetShare(o.lossy.t1, v); },
     [](In o) { return TextOf(o.lossy.t1); }},
    {"t2", [](EngineOptions& o, Text v) { return SetShare(o.lossy.t2, v); },
     [](In o) { return TextOf(o.lossy.t2); }},
    {"importance", SetImportance, [](In o) { return KnobValue(o.lossy.importance); }},
    {"norms", SetNorms, [](In o) { return KnobValue(o.norms); }},
    {"drop-below", [](EngineOptions& o, Text v) { return SetShare(o.lossy.drop_below, v); },
     [](In o) { return TextOf(o.lossy.drop_below); }},
    {"prefer-resident",
     [](EngineOptions& o, Text v) { return SetShare(o.lossy.prefer_resident, v); },
     [](In o) { return TextOf(o.lossy.prefer_resident); }},
    {"keep", SetKeep, [](In o) { return KnobValue(Format("{}", o.lossy.keep)); }},
    {"rescale", [](EngineOptions& o, Text v) { return SetSwitch(o.lossy.rescales, v); },
     [](In o) { return KnobValue(o.lossy.rescales ? "1" : "0"); }},
    {"upgrade", [](EngineOptions& o, Text v) { return SetSwitch(o.lossy.upgrades, v); },
     [](In o) { return KnobValue(o.lossy.upgrades ? "1" : "0"); }},
    {"lossy-mode",
     [](EngineOptions& o, Text v) -> Status {
       TRY(o.lossy.is_reproducible, ParseLossyMode(v));
       return {};
     },
     [](In o) { return KnobValue(o.lossy.is_reproducible ? "reproducible" : "opportunistic"); }},
    {"little", SetLittle,
     [](In o) { return o.little.is_on() ? KnobValue(ToText(o.little)) : std::nullopt; }},
    {"gamma", [](EngineOptions& o, Text v) { return SetShare(o.little.gamma, v); },
     [](In o) { return TextOf(o.little.gamma); }},
    {"little-misses",
     [](EngineOptions& o, Text v) -> Status {
       TRY(o.little.misses, ParseMisses(v));
       return {};
     },
     [](In o) { return KnobValue(ToString(o.little.misses)); }},
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

bool IsBudgetKnob(std::string_view name) {
  const auto* found = std::ranges::find(kKnobs, name, &Knob::name);
  return found != kKnobs.end() && found->get == nullptr;
}

KnobSettings ChangedKnobs(const EngineOptions& options) {
  const EngineOptions defaults;
  KnobSettings changed;
  for (const Knob& knob : kKnobs) {
    if (knob.get == nullptr) continue;
    const KnobValue value = knob.get(options);
    if (value && value != knob.get(defaults)) {
      changed.push_back({.knob = std::string(knob.name), .value = *value});
    }
  }
  return changed;
}

Result<bool> ParseLossyMode(const std::string& text) {
  if (text == "reproducible" || text == "opportunistic") return text == "reproducible";
  return Fail(Errc::kUsage, "'{}' is no mode; write reproducible or opportunistic", text);
}

}  // namespace moestro
