// SPDX-License-Identifier: MIT
// What `moestro plan` predicted of a model, kept in a folder of the user's cache for the runs that
// follow, which say what came of it. Whatever is wrong there is no error.
//
// Thread rule: none, calls share nothing but the file system.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace moestro {

// Decoded tokens per second with a share of the experts in memory.
struct PlannedSpeed {
  double share = 0.0;  // 0 to 1
  double low = 0.0;
  double high = 0.0;

  bool operator==(const PlannedSpeed&) const = default;
};

// What is said of `share` by the points around it, which rise by share: speeds between two points
// change as a power does. nullopt: there are no points, or none so small.
std::optional<PlannedSpeed> SpeedAt(std::span<const PlannedSpeed> points, double share);

// Keeps them for the model of that fingerprint and a number of compute threads, in place of older
// ones. `folder` may be empty: nothing is kept.
void KeepPlan(const std::string& folder, uint64_t fingerprint, uint32_t threads,
              std::span<const PlannedSpeed> points);
// Empty: none are kept.
std::vector<PlannedSpeed> KeptPlan(const std::string& folder, uint64_t fingerprint,
                                   uint32_t threads);

}  // namespace moestro
