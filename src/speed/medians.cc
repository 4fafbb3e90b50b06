// SPDX-License-Identifier: MIT
#include "speed/medians.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/quantile.h"

namespace moestro {

Json MediansOf(const std::vector<Json>& runs) {
  Json medians = Json::Object();
  for (const std::string& key : runs.front().keys()) {
    std::vector<double> values;
    for (const Json& run : runs) {
      const auto value = run.Find(key);
      if (const auto number = value ? value->number() : std::nullopt) values.push_back(*number);
    }
    const bool is_number = values.size() == runs.size();
    const auto [low, high] = std::ranges::minmax(values.empty() ? std::vector{0.0} : values);
    medians.Set(key,
                is_number && low != high ? Json(Median(values)) : runs.front().Find(key)->Copy());
  }
  return medians;
}

}  // namespace moestro
