// SPDX-License-Identifier: MIT
// Access to a path: mounts, rights of a user, and a service's view. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/system_facts.h"

namespace moestro {

// Rights of a user to read a file, by the bits and access lists of every folder on the way to it.
// Pure.

// The table of mounted file systems, /proc/self/mountinfo. Pure.

struct Mount {
  std::string point = {};        // folder where the mount begins
  std::string file_system = {};  // "ext4"
  std::string source = {};       // "/dev/sda1"
  std::string options = {};      // of the mount and of the file system
  uint32_t major = 0;            // number of the device; 0: no device
  uint32_t minor = 0;
};

// Parses a table of mounts. Malformed lines are left out.
std::vector<Mount> ParseMounts(std::string_view text);

// The mount that `path` is in, the last of several at one point. REQUIRES: `path` is absolute and
// has no links in it.
std::optional<Mount> FindMount(const std::vector<Mount>& mounts, std::string_view path);

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

// View of the file system that a unit of systemd gives its process, whatever the bits of files are:
// the unit's own state lies in folders that are closed to all others, and homes are hidden. Pure.

// Whether `user` is that of our unit, or one that systemd makes up while a service runs.
bool IsService(const UserFacts& user);

// Whether `path` is a folder for the state of services with temporary users, which is closed on
// purpose.
bool IsPrivateRoot(std::string_view path);

struct ServiceView {
  std::vector<PathStep> steps = {};  // steps whose bits decide
  std::string hidden = {};           // the first path that the unit hides; empty: none
  std::string setting = {};          // the unit's setting that hides the path: "ProtectHome"
};

// The steps to a model that exist for `user`: for a service's user those that the unit shows, for
// any other user all.
ServiceView ViewOf(const UserFacts& user, const std::vector<PathStep>& steps);

}  // namespace moestro
