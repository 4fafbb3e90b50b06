// SPDX-License-Identifier: MIT
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "decide/policies/lru.h"
#include "decide/policy.h"

namespace moestro {
namespace {

using Make = std::unique_ptr<Policy> (*)();

constexpr std::array<std::pair<std::string_view, Make>, 1> kPolicies = {{
    {"lru", [] -> std::unique_ptr<Policy> { return std::make_unique<LruPolicy>(); }},
}};

}  // namespace

std::vector<std::string_view> PolicyNames() {
  std::vector<std::string_view> names;
  for (const auto& [name, make] : kPolicies) names.push_back(name);
  return names;
}

Result<std::unique_ptr<Policy>> MakePolicy(std::string_view name) {
  std::string known;
  for (const auto& [candidate, make] : kPolicies) {
    if (candidate == name) return make();
    known += known.empty() ? "" : ", ";
    known += candidate;
  }
  return Fail(Errc::kUsage, "unknown policy '{}'; known: {}", name, known);
}

}  // namespace moestro
