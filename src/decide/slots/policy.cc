// SPDX-License-Identifier: MIT
#include "decide/slots/policy.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/result.h"
#include "base/text.h"
#include "decide/slots/policies/policies.h"

namespace moestro {

const PolicyChoice& ChoiceFor(const PolicyTuning& tuning, uint64_t slots) {
  const auto distance = [slots](const TunedSize& size) {
    return std::abs(std::log(static_cast<double>(size.slots) / static_cast<double>(slots)));
  };
  return std::ranges::min_element(tuning.sizes, {}, distance)->choice;
}

namespace {

struct Entry {
  PolicyInfo info;
  std::unique_ptr<Policy> (*make)(const PolicyValues&);
};

std::vector<Entry> Entries() {
  return {
      {{"lru", "least recently used", {}}, MakeLru},
      {{"lfu", "least frequently used since loading", {}}, MakeLfu},
      {{"lfu-seq", "least frequently used in this sequence", {}}, MakeLfuSeq},
      {{"lfru", "frequency, halved every half_life tokens", {{"half_life", 16.0, 1.0, 1e6}}},
       MakeLfru},
      {{"fld", "farthest layer distance", {}}, MakeFld},
      {{"hobbit",
        "weighted recency, frequency, high-precision use and layer distance in this sequence",
        {{.name = "w_lru", .default_value = 0.3, .is_share = true},
         {.name = "w_lfu", .default_value = 0.5, .is_share = true},
         {.name = "w_lhu", .default_value = 0.0, .is_share = true, .is_idle = true},
         {.name = "w_fld", .default_value = 0.2, .is_share = true}}},
       MakeHobbit},
      {{"edgemoe", "frequency times layers since the last turn", {}}, MakeEdgeMoe},
      {{"next-use",
        "fewest expected hits for the time until the next chance, learned while running",
        {{"half_life", 32.0, 1.0, 1e6}, {"prior", 50.0, 0.1, 1e6}}},
       MakeNextUse},
  };
}

Result<PolicyValues> ValuesOf(const PolicyInfo& info, const PolicyChoice& choice) {
  PolicyValues values;
  std::string known;
  for (const PolicyParameter& parameter : info.parameters) {
    values.emplace(parameter.name, parameter.default_value);
    known += (known.empty() ? "" : ", ") + std::string(parameter.name);
  }
  for (const auto& [name, value] : choice.parameters) {
    const auto found = values.find(name);
    if (found == values.end()) {
      return Fail(Errc::kUsage, "policy '{}' has no parameter '{}'; it has: {}", info.name, name,
                  known.empty() ? "none" : known);
    }
    found->second = value;
  }
  for (const PolicyParameter& p : info.parameters) {
    const double value = values.find(p.name)->second;
    if (value >= p.min && value <= p.max) continue;
    return Fail(Errc::kUsage, "policy '{}': {} = {} must be from {} to {}", info.name, p.name,
                value, p.min, p.max);
  }
  return values;
}

Result<std::pair<std::string, double>> ParseParameter(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals != std::string_view::npos) {
    const std::optional<double> value = ParseNumber<double>(text.substr(equals + 1));
    if (value) return std::pair(std::string(text.substr(0, equals)), *value);
  }
  return Fail(Errc::kUsage, "'{}' is not a policy's parameter; write name=number", text);
}

}  // namespace

Result<PolicyChoice> ParsePolicyChoice(std::string_view text) {
  const size_t colon = text.find(':');
  PolicyChoice choice{.name = std::string(text.substr(0, colon))};
  std::string_view rest = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    TRY(auto parameter, ParseParameter(rest.substr(0, comma)));
    choice.parameters.insert_or_assign(std::move(parameter.first), parameter.second);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
  TRY([[maybe_unused]] const auto policy, MakePolicy(choice));
  return choice;
}

std::string ToText(const PolicyChoice& choice) {
  std::string text = choice.name;
  for (const auto& [name, value] : choice.parameters) {
    text += Format("{}{}={}", text.size() == choice.name.size() ? ":" : ",", name, value);
  }
  return text;
}

std::vector<PolicyInfo> KnownPolicies() {
  std::vector<PolicyInfo> infos;
  for (const Entry& entry : Entries()) infos.push_back(entry.info);
  return infos;
}

Result<std::unique_ptr<Policy>> MakePolicy(const PolicyChoice& choice) {
  std::string known;
  for (const Entry& entry : Entries()) {
    if (entry.info.name == choice.name) {
      TRY(const PolicyValues values, ValuesOf(entry.info, choice));
      return entry.make(values);
    }
    known += (known.empty() ? "" : ", ") + std::string(entry.info.name);
  }
  return Fail(Errc::kUsage, "unknown policy '{}'; known: {}", choice.name, known);
}

}  // namespace moestro
