// SPDX-License-Identifier: MIT
// The flag --shard, and the report of a command about the shard that it wrote.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/flags.h"
#include "offline/shard/shard_file.h"

namespace moestro {

// The flag; `shard` must outlive the parsing.
Flag AddShardFlag(Flags flags, std::optional<Shard>& shard);

// Checks the output before any long reading. kUsage: no file is named; kIo: the file cannot be
// written. REQUIRES: a shard is requested.
Status CheckShardOutput(const OutputPath& output);

// One line for people, or one object.
std::string ShardText(const ShardInfo& shard, const std::string& path, bool json);

}  // namespace moestro
