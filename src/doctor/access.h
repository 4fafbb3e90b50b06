// SPDX-License-Identifier: MIT
// Rights of a user to read a file, by the bits and access lists of every folder on the way to it.
// Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/system_facts.h"

namespace moestro {

// Parses the value of the attribute "system.posix_acl_access". nullopt: it is not an access list.
std::optional<AccessList> ParseAccessList(std::string_view bytes);

// Rights of `user` on the file or folder, as the kernel decides them: 4 read, 2 write, 1 search.
uint8_t BitsFor(const UserFacts& user, const PathStep& step);

struct AccessGap {
  std::string path;
  bool is_foreign = false;
  std::string bits;  // missing rights: "x", "r", "rx"
};

// Steps of the way that stop `user`. A folder need only be passed, because models in it are named.
std::vector<AccessGap> FindGaps(const UserFacts& user, const std::vector<PathStep>& steps);

// `text` as a word of a shell's command line, in printable ASCII: other bytes are written
// $'\303\251', as all shells but the oldest read it.
std::string ShellWord(std::string_view text);

}  // namespace moestro
