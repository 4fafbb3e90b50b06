// SPDX-License-Identifier: MIT
// Misses of a model's last decode, kept in a folder of the user's cache for later plans of that
// model. A fault of the folder or of a file is no error.
//
// Thread rule: none, calls share nothing but the file system.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace moestro {

struct SeenCaching {
  double share = 0.0;    // share of the experts that memory held
  double missing = 0.0;  // share of the requested experts that memory lacked

  bool operator==(const SeenCaching&) const = default;
};

// Replaces an earlier run's values. `folder` may be empty: nothing is kept.
void KeepCaching(const std::string& folder, uint64_t fingerprint, const SeenCaching& seen);
// nullopt: none is kept.
std::optional<SeenCaching> KeptCaching(const std::string& folder, uint64_t fingerprint);

}  // namespace moestro
