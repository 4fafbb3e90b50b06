// SPDX-License-Identifier: MIT
// What a unit of systemd shows and hides to its process, whatever the bits of files say: its own
// state lies in folders that are closed to all others, and homes are hidden. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doctor/system_facts.h"

namespace moestro {

// Is it the user of our unit, or one that systemd makes up while a service runs?
bool IsService(const UserFacts& user);

// A folder that holds the state of services whose users come and go; it is closed on purpose.
bool IsPrivateRoot(std::string_view path);

struct ServiceView {
  std::vector<PathStep> steps = {};  // that bits decide on
  std::string hidden = {};           // the first path that the unit hides; empty: none
  std::string setting = {};          // which does that: "ProtectHome"
};

// How the way to a model looks to `user`. Everybody but a service sees all of it.
ServiceView ViewOf(const UserFacts& user, const std::vector<PathStep>& steps);

}  // namespace moestro
