// SPDX-License-Identifier: MIT
// View of the file system that a unit of systemd gives its process, whatever the bits of files are:
// the unit's own state lies in folders that are closed to all others, and homes are hidden. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/system_facts.h"

namespace moestro {

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
