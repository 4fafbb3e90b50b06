// SPDX-License-Identifier: MIT
// Reports of the commands that learn from a model's runs, and of the shards they write.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/flags.h"
#include "offline/record/imatrix.h"
#include "offline/record/profile.h"
#include "offline/shard_file.h"

namespace moestro {

// Writes which experts a text was never routed to.

// One line: "unvisited  5 of 96 experts: 3 in layer 0, 2 in layer 4"; unvisited: [layer with
// experts], each at most `experts`.
std::string UnvisitedText(std::span<const uint32_t> unvisited, uint32_t experts);

// The output of `imatrix`.

// Lines for people, with a final newline; `path` is where the importances went.
std::string DescribeImatrix(const std::string& path, const ImatrixReport& report);
Json ImatrixAsJson(const std::string& path, const ImatrixReport& report);

// The output of `profile`.

// Several lines for people, with a final newline.
std::string DescribeProfile(const Profile& profile);
Json ProfileAsJson(const Profile& profile);

// The flag --shard, and the report of a command about the shard that it wrote.

// The flag; `shard` must outlive the parsing.
Flag AddShardFlag(Flags flags, std::optional<Shard>& shard);

// Checks the output before any long reading. kUsage: no file is named; kIo: the file cannot be
// written. REQUIRES: a shard is requested.
Status CheckShardOutput(const OutputPath& output);

// One line for people, or one object.
std::string ShardText(const ShardInfo& shard, const std::string& path, bool json);

}  // namespace moestro
