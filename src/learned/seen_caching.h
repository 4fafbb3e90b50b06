// SPDX-License-Identifier: MIT
// How well memory served the routing of a model's last decode, kept in a folder of the user's cache
// for later plans of that model. Whatever is wrong there is no error.
//
// Thread rule: none, calls share nothing but the file system.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace moestro {

struct SeenCaching {
  double share = 0.0;    // of the experts, that memory held
  double missing = 0.0;  // of the experts that tokens asked for, that memory lacked

  bool operator==(const SeenCaching&) const = default;
};

// In place of what an earlier run kept. `folder` may be empty: nothing is kept.
void KeepCaching(const std::string& folder, uint64_t fingerprint, const SeenCaching& seen);
// nullopt: none is kept.
std::optional<SeenCaching> KeptCaching(const std::string& folder, uint64_t fingerprint);

}  // namespace moestro
