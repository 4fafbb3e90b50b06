// SPDX-License-Identifier: MIT
// `--shard` and `moestro merge` from outside: any number of shards is the whole run.
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "tests/cli/program_testing.h"
#include "tests/cli/shards_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;
using testing::kDemo;
using testing::NumberAt;
using testing::Program;
using testing::Words;

class ShardsTest : public testing::ShardsFolder {};

constexpr uint32_t kMoreThanWindows = 9;
// One alone, even and uneven ones, and more than there are windows; a few where that takes long.
const std::vector<uint32_t> kCounts = {1, 2, 3, kMoreThanWindows};
const std::vector<uint32_t> kFewCounts = {3};

TEST_F(ShardsTest, EvalGivesTheSameNumbersToTheBit) {
  for (const Words& more : {Words{}, Words{"--against", "exact", "--kv-type", "q8_0"},
                            Words{"--score-from", "5", "-n", "60"}}) {
    Words whole_words = Command("eval", more);
    whole_words.emplace_back("--json");
    const auto whole = Json::Parse(RunWell(whole_words));
    ASSERT_TRUE(whole);
    for (const uint32_t count : more.empty() ? kCounts : kFewCounts) {
      const auto merged =
          Json::Parse(RunWell(MergeOf(RunShards(Command("eval", more), count), {"--json"})));
      ASSERT_TRUE(merged);
      const auto keys = merged->view().keys();
      EXPECT_GE(keys.size(), more.size() == 4 && more[0] == "--against" ? 16U : 4U);
      for (const std::string& key : keys) {
        EXPECT_EQ(merged->Find(key)->Dump(), whole->Find(key)->Dump()) << key << " of " << count;
      }
    }
    EXPECT_LT(NumberAt(*whole, "windows"), kMoreThanWindows);
    EXPECT_GE(NumberAt(*whole, "windows"), 3.0);
  }
}

TEST_F(ShardsTest, ATraceIsTheSameToTheByte) {
  for (const Words& more : {Words{}, Words{"--prefill", "5", "--candidates"},
                            Words{"--little", "2", "--random", "7"}}) {
    const std::string whole = folder_.File("whole.trace");
    const std::string merged = folder_.File("merged.trace");
    Words words = Command("trace", more);
    words.insert(words.end(), {"-o", whole});
    EXPECT_EQ(RunWell(words), "");
    for (const uint32_t count : more.empty() ? kCounts : kFewCounts) {
      RunWell(MergeOf(RunShards(Command("trace", more), count), {"-o", merged}));
      EXPECT_TRUE(ReadAll(merged) == ReadAll(whole)) << count;
    }
  }
}

TEST_F(ShardsTest, AProfileIsTheSameToTheByte) {
  const auto file = [&](const char* name) { return folder_.File(name); };
  Words words = Command("profile");
  words.insert(words.end(), {"-o", file("w.paths"), "--norms-output", file("w.norms"), "--json"});
  const auto whole = Json::Parse(RunWell(words));
  ASSERT_TRUE(whole);
  for (const uint32_t count : kCounts) {
    const auto merged = Json::Parse(
        RunWell(MergeOf(RunShards(Command("profile"), count),
                        {"-o", file("m.paths"), "--norms-output", file("m.norms"), "--json"})));
    ASSERT_TRUE(merged);
    EXPECT_TRUE(ReadAll(file("m.paths")) == ReadAll(file("w.paths"))) << count;
    EXPECT_TRUE(ReadAll(file("m.norms")) == ReadAll(file("w.norms"))) << count;
    for (const char* key : {"tokens", "keys", "recall_paths", "recall_popular", "recall_repeat"}) {
      EXPECT_EQ(NumberAt(*merged, key), NumberAt(*whole, key)) << key;
    }
  }
}

TEST_F(ShardsTest, ImportancesQuantiseToTheSameBytes) {
  const auto folder = [&](const char* name) {
    fs::create_directories(folder_.path() / name);
    return folder_.File(name);
  };
  const std::string whole = folder("whole");
  const std::string merged = folder("merged");
  // The low copies name the file: it has one name in both folders.
  const auto quantise = [&](const std::string& in) {
    RunWell({"quantize", kDemo, "--experts", "q2_k", "--imatrix", in + "/imatrix", "-o",
             in + "/low", "--force"});
    return ReadAll(in + "/low");
  };
  Words words = Command("imatrix");
  words.insert(words.end(), {"-o", whole + "/imatrix"});
  const std::string said = RunWell(words);
  const std::string low = quantise(whole);
  ASSERT_GT(low.size(), 10000U);
  for (const uint32_t count : kFewCounts) {
    const std::string out =
        RunWell(MergeOf(RunShards(Command("imatrix"), count), {"-o", merged + "/imatrix"}));
    EXPECT_EQ(out.substr(0, out.find(',')), said.substr(0, said.find(','))) << out;
    EXPECT_EQ(ReadAll(merged + "/imatrix").size(), ReadAll(whole + "/imatrix").size());
    EXPECT_TRUE(quantise(merged) == low) << count;
  }
}

// Other threads, budgets and readers on each machine of a queue, and any order of the arguments.
TEST_F(ShardsTest, MachinesNeedNotBeAlike) {
  const std::vector<Words> machines = {{"-t", "1", "--cache", "30%", "--reader", "pread"},
                                       {"-t", "2", "--cache", "100%", "--chunk", "7"},
                                       {"-t", "2", "--ram", "400M", "--prefetch", "0"}};
  const auto run = [&](const std::string& name, const Words& flags, const Words& more) {
    Words words = {name, kDemo, "--text", folder_.File("story.txt"), "--ctx", "16"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), more.begin(), more.end());
    return RunWell(words);
  };
  for (const std::string name : {"eval", "imatrix", "profile"}) {
    const std::string whole = folder_.File(name + ".whole");
    const std::string merged = folder_.File(name + ".merged");
    const bool is_eval = name == "eval";
    const auto printed = Json::Parse(
        run(name, machines[1], is_eval ? Words{"--json"} : Words{"-o", whole, "--json"}));
    ASSERT_TRUE(printed);
    Words paths;
    for (uint32_t index = 1; index <= machines.size(); ++index) {
      paths.push_back(folder_.File(Format("{}.{}", name, index)));
      run(name, machines[index - 1], {"--shard", Format("{}/3", index), "-o", paths.back()});
    }
    for (const Words& order :
         {Words{paths[0], paths[1], paths[2]}, Words{paths[1], paths[2], paths[0]}}) {
      const auto result = Json::Parse(
          RunWell(MergeOf(order, is_eval ? Words{"--json"} : Words{"-o", merged, "--json"})));
      ASSERT_TRUE(result);
      for (const char* key : {"tokens", "perplexity", "perplexity_se", "keys", "unvisited"}) {
        if (!printed->Find(key)) continue;
        EXPECT_EQ(result->Find(key)->Dump(), printed->Find(key)->Dump()) << name << " " << key;
      }
      if (is_eval) continue;
      EXPECT_EQ(ReadAll(merged).size(), ReadAll(whole).size());
      EXPECT_TRUE(name == "imatrix" || ReadAll(merged) == ReadAll(whole));
    }
  }
}

// The only window is not filled, and four of the five shards have none.
TEST_F(ShardsTest, ATextShorterThanAWindowIsOneWindow) {
  std::ofstream(folder_.File("story.txt")) << "One day";
  const auto words = [&](const std::string& name, const Words& more) {
    Words all = {name, kDemo, "--text", folder_.File("story.txt"), "-t", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const auto whole = Json::Parse(RunWell(words("eval", {"--json"})));
  ASSERT_TRUE(whole);
  EXPECT_EQ(NumberAt(*whole, "windows"), 1.0);
  const auto merged = Json::Parse(RunWell(MergeOf(RunShards(words("eval", {}), 5), {"--json"})));
  ASSERT_TRUE(merged);
  EXPECT_EQ(NumberAt(*merged, "perplexity"), NumberAt(*whole, "perplexity"));
  for (const char* name : {"imatrix", "profile", "trace"}) {
    const std::string one = folder_.File("one");
    const std::string all = folder_.File("all");
    RunWell(words(name, {"-o", one}));
    RunWell(MergeOf(RunShards(words(name, {}), 5), {"-o", all}));
    EXPECT_TRUE(ReadAll(all) == ReadAll(one)) << name;
  }
}

// Each writes a file of its own and renames it.
TEST_F(ShardsTest, MergesIntoOneFileAtOnceLeaveAWholeOne) {
  const std::string whole = folder_.File("whole.trace");
  const std::string out = folder_.File("out");
  RunWell(Command("trace", {"-o", whole}));
  const Words merge = MergeOf(RunShards(Command("trace"), 3), {"-o", out});
  std::deque<Program> programs;
  for (int i = 0; i < 4; ++i)
    programs.emplace_back(folder_.path(), testing::Start{.arguments = merge});
  for (Program& program : programs) {
    const testing::Finished run = program.Wait();
    EXPECT_EQ(run.exit_code, 0) << run.err;
  }
  EXPECT_TRUE(ReadAll(out) == ReadAll(whole));
}

}  // namespace
}  // namespace moestro
