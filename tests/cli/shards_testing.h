// SPDX-License-Identifier: MIT
// A model, two texts, and the program that works on shards of them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tests/cli/program_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro::testing {

using Words = std::vector<std::string>;

inline constexpr std::string_view kShardStory =
    "Once upon a time there was a little dog. The dog liked to play with a red ball in the park. "
    "One day the ball was gone. The dog was sad and looked under the tree and in the garden.";
inline constexpr std::string_view kShardOther =
    "Lily had a cat. The cat was black and liked milk. It ran up a tree and could not come down.";

class ShardsFolder : public ::testing::Test {
 protected:
  ShardsFolder() {
    std::ofstream(folder_.File("story.txt")) << kShardStory;
    std::ofstream(folder_.File("other.txt")) << kShardOther;
  }
  Finished Run(Words arguments) const {
    return Program(folder_.path(), {.arguments = std::move(arguments)}).Wait();
  }
  std::string RunWell(Words arguments) const {
    const Finished run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.out;
  }
  void ExpectError(Words arguments, int exit_code, const std::string& part) const {
    const Finished run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, exit_code) << run.err;
    EXPECT_NE(run.err.find(part), std::string::npos) << "wanted " << part << "\n" << run.err;
    EXPECT_EQ(std::string_view(run.err).substr(0, run.err.size() - 1).find('\n'),
              std::string_view::npos)
        << run.err;
    EXPECT_EQ(run.out, "");
  }
  // Two texts in windows of 24 tokens: neither fills its last one.
  Words Command(const std::string& name, const Words& more = {}) const {
    Words words = {name,      kDemo,
                   "--text",  folder_.File("story.txt"),
                   "--text",  folder_.File("other.txt"),
                   "--ctx",   "24",
                   "-t",      "1",
                   "--cache", "50%"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::string RunShard(Words command, uint32_t index, uint32_t count) const {
    std::string path = folder_.File(Format("{}.of.{}", index, count));
    command.insert(command.end(), {"--shard", Format("{}/{}", index, count), "-o", path});
    RunWell(std::move(command));
    return path;
  }
  // Last shard first: a queue ends when it ends.
  Words RunShards(const Words& command, uint32_t count) const {
    Words paths;
    for (uint32_t index = count; index >= 1; --index) {
      paths.push_back(RunShard(command, index, count));
    }
    return paths;
  }
  static Words MergeOf(Words shards, const Words& more) {
    shards.insert(shards.begin(), "merge");
    shards.insert(shards.end(), more.begin(), more.end());
    return shards;
  }
  TempFolder folder_;
};

}  // namespace moestro::testing
