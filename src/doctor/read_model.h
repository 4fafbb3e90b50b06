// SPDX-License-Identifier: MIT
// Looks at a model's place: its disk, and the access rights of the folders and files on the way to
// it.
//
// Thread rule: any; calls share nothing but the file system.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "doctor/access.h"
#include "doctor/system_facts.h"

namespace moestro {

// Everything that a reader of `path` passes, each once: folders from "/" on, those of links and of
// what they point to, and the target. Ends where this process has no right to go on.
std::vector<PathStep> WalkPath(const std::string& path);

// The whole disk behind a mount. `root` stands before /sys.
DiskFacts ReadDisk(const std::string& root, const Mount& mount);

// Bytes per second of direct reads at random places of a file, for half a second at most. nullopt:
// the file is too small to tell, or cannot be read.
std::optional<double> MeasureReads(const std::string& path);

// `name`: a user's name or number; empty: the user of this process. An unknown name is judged as a
// stranger (a service's user may exist only while it runs).
UserFacts FindUser(const std::string& name);

// `path`: a file, the first part of several, or a folder of models. `root` stands before /proc and
// /sys.
ModelFacts ReadModel(const std::string& root, const std::string& path, const std::string& user);

}  // namespace moestro
