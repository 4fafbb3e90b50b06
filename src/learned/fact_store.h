// SPDX-License-Identifier: MIT
// Facts in the user's cache, kept from one start to the next: a value of some bytes under a key.
// The values are this program's own and can be made again, so a fault of the folder or of a file
// costs the fact and is no error. Files that people may read and write have formats of their own
// (learned/machine_files.h).
//
// Thread rule: none, calls share nothing but the file system. A reader gets a whole value, the one
// before or the one after a write at the same time.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace moestro {

struct FactKey {
  // Name of the file. A later value of that name replaces an earlier one, whatever the texts are.
  std::string file = {};
  // Everything that the value depends on. A value under another text is not found.
  std::string text = {};
};

// Larger values are not kept.
constexpr size_t kMostFactBytes = 4U << 20U;

// The value that was kept in `folder` for exactly this key. nullopt: none is kept, or `folder` is
// empty; or the file was damaged, replaced or is open to other users, with a line in the log.
std::optional<std::string> KeptFact(const std::string& folder, const FactKey& key);
// Keeps a value. `folder` may be empty: nothing is kept.
void KeepFact(const std::string& folder, const FactKey& key, std::string_view value);

}  // namespace moestro
