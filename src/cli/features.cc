// SPDX-License-Identifier: MIT
#include "cli/features.h"

#include <array>
#include <string>
#include <string_view>

#include "base/format.h"

namespace moestro {
namespace {

struct Feature {
  std::string_view flag;
  bool Features::* is_on;
};

constexpr Feature kLittle{"--little", &Features::little};
constexpr Feature kDraft{"--draft", &Features::draft};
constexpr Feature kBeams{"--beams", &Features::beams};
constexpr Feature kLow{"--low", &Features::low};
constexpr Feature kPreferResident{"--prefer-resident", &Features::prefer_resident};
constexpr Feature kSequences{"--sequences", &Features::sequences};

constexpr std::array kAll = {kLittle, kDraft, kBeams, kLow, kPreferResident, kSequences};

struct Pair {
  Feature a;
  Feature b;
};
constexpr std::array kWorks = {
    Pair{kLittle, kLow},    Pair{kLittle, kPreferResident},    Pair{kLittle, kSequences},
    Pair{kBeams, kLow},     Pair{kBeams, kPreferResident},     Pair{kLow, kPreferResident},
    Pair{kLow, kSequences}, Pair{kPreferResident, kSequences},
};

bool Works(const Feature& a, const Feature& b) {
  for (const Pair& pair : kWorks) {
    if ((pair.a.flag == a.flag && pair.b.flag == b.flag) ||
        (pair.a.flag == b.flag && pair.b.flag == a.flag)) {
      return true;
    }
  }
  return false;
}

std::string Partners(const Feature& feature) {
  std::string partners;
  for (const Feature& other : kAll) {
    if (!Works(feature, other)) continue;
    partners += Format("{}{}", partners.empty() ? "" : ", ", other.flag);
  }
  return partners.empty() ? "none of these" : partners;
}

}  // namespace

Features FeaturesOf(const EngineOptions& engine) {
  return {.little = engine.little.is_on(),
          .low = !engine.low.empty(),
          .prefer_resident = engine.lossy.prefer_resident > 0.0};
}

Status CheckAllExperts(const char* command, const EngineOptions& engine) {
  if (!engine.little.is_on()) return {};
  return Fail(Errc::kUsage, "'{}' measures all experts of a token; leave out --little", command);
}

Status CheckTogether(const Features& features) {
  for (size_t i = 0; i < kAll.size(); ++i) {
    for (size_t j = i + 1; j < kAll.size(); ++j) {
      const bool are_on = features.*kAll[i].is_on && features.*kAll[j].is_on;
      if (!are_on || Works(kAll[i], kAll[j])) continue;
      return Fail(Errc::kUsage, "{} and {} do not work together; {} works with {}", kAll[i].flag,
                  kAll[j].flag, kAll[i].flag, Partners(kAll[i]));
    }
  }
  return {};
}

}  // namespace moestro
