// SPDX-License-Identifier: MIT
// What `--shard` and `moestro merge` refuse, and what is left behind when a run ends early:
// nothing.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cli/shards_testing.h"
#include "tests/support/file_size_limit_testing.h"
#include "tests/support/other_weights_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::kDemo;
using testing::Program;
using testing::Words;

class ShardRefusals : public testing::ShardsFolder {};

TEST_F(ShardRefusals, WhatIsNoWholeRunIsRefusedAndNothingIsWritten) {
  const std::string out = folder_.File("out");
  const Words trace = Command("trace");
  const Words shards = RunShards(trace, 3);
  const auto merge = [&](Words paths, const std::string& part) {
    ExpectError(MergeOf(std::move(paths), {"-o", out}), 1, part);
    EXPECT_FALSE(fs::exists(out)) << part;
  };
  merge({shards[0], shards[1], shards[2], shards[0]}, "are both shard 3 of 3");
  merge({shards[0], shards[2]}, "1 of 3 shards are missing: 2/3");
  merge({shards[0], shards[1], RunShard(trace, 1, 2)}, "shard 1 of 2");
  const Words two = {shards[0], shards[1]};
  const auto with = [&](Words command) {
    Words all = two;
    all.push_back(RunShard(std::move(command), 1, 3));
    return all;
  };
  merge(with(Command("profile")), "a shard of 'profile'");
  Words words = trace;
  words[3] = folder_.File("other.txt");
  merge(with(words), "another text");
  words = trace;
  words.insert(words.end(), {"--prefill", "3"});
  merge(with(words), "made with 'prefill 3'");
  words = trace;
  words[7] = "23";
  merge(with(words), "made with 'ctx 23'");
  words = trace;
  words[1] = folder_.File("other.gguf");
  RunWell({"synth",   "--shape",    "olmoe-1b-7b", "--layers",   "2",    "--experts", "4",
           "--used",  "2",          "--embd",      "64",         "--ff", "32",        "--heads",
           "2",       "--kv-heads", "2",           "--head-dim", "32",   "--type",    "F16",
           "--vocab", kDemo,        "-o",          words[1]});
  merge(with(words), "made with the model ");
  words[1] = folder_.File("tuned.gguf");
  WriteOtherWeights(kDemo, words[1],
                    [](std::string_view tensor) { return tensor == "output_norm.weight"; });
  merge(with(words), "made with other weights");
}

TEST_F(ShardRefusals, ADamagedShardIsRefusedAndNothingIsWritten) {
  const std::string out = folder_.File("out");
  for (const char* command : {"eval", "imatrix", "profile", "trace"}) {
    const Words shards = RunShards(Command(command), 2);
    const std::string bytes = ReadAll(shards[0]);
    const bool is_eval = std::string_view(command) == "eval";
    for (const size_t length :
         {size_t{0}, size_t{7}, size_t{40}, bytes.size() / 2, bytes.size() - 1}) {
      std::ofstream(shards[0], std::ios::binary) << bytes.substr(0, length);
      ExpectError(MergeOf(shards, is_eval ? Words{} : Words{"-o", out}), 1, shards[0]);
    }
    std::string changed = bytes;
    changed[bytes.size() - 20] = static_cast<char>(changed[bytes.size() - 20] + 1);
    std::ofstream(shards[0], std::ios::binary) << changed;
    ExpectError(MergeOf(shards, is_eval ? Words{} : Words{"-o", out}), 1, "checksum");
    EXPECT_FALSE(fs::exists(out));
  }
}

TEST_F(ShardRefusals, UsageMistakesAreNamed) {
  const std::string out = folder_.File("out");
  const auto usage = [&](const std::string& name, const Words& more, const std::string& part) {
    ExpectError(Command(name, more), 2, part);
    EXPECT_FALSE(fs::exists(out)) << part;
  };
  for (const char* name : {"eval", "profile", "trace"}) usage(name, {"--shard", "1/2"}, "-o");
  usage("eval", {"-o", out}, "--shard");
  ExpectError({"eval", kDemo, "--task", "gsm8k", out + "q", "-o", out}, 2, "--shard");
  for (const char* shard : {"1", "", "/", "1/", "/2", "a/b", "-1/2", "1/-2", "1/0", "1e3/1e4"}) {
    usage("imatrix", {"--shard", shard, "-o", out}, "--shard");
  }
  usage("trace", {"--shard", "0/3", "-o", out}, "shard 0 of 3 does not exist");
  usage("trace", {"--shard", "4/3", "-o", out}, "shard 4 of 3 does not exist");
  usage("trace", {"--shard", "1/1000000000", "-o", out}, "from 1 to 65536");
  usage("trace", {"--shard", "1/2", "-o", out, "--summary"}, "--summary");
  usage("trace", {"--shard", "1/2", "-o", out, "--prefer-resident", "0.1"}, "--prefer-resident");
  usage("eval", {"--shard", "1/2", "-o", out, "--drop-below", "0.1"}, "--drop-below");
  usage("eval", {"--shard", "1/2", "-o", out, "--sweep", "prefetch=0,1"}, "--sweep");
  usage("profile", {"--shard", "1/2", "-o", out, "--norms-output", out + "n"}, "merge");
  ExpectError({"merge"}, 2, "FILE");
  const std::string shard = RunShard(Command("trace"), 1, 1);
  ExpectError({"merge", shard}, 2, "-o FILE");
  ExpectError({"merge", shard, "-o", out, "--norms-output", out + "n"}, 2, "of 'trace'");
  ExpectError({"merge", shard, "-o", shard}, 1, shard);
  ExpectError({"merge", kDemo, "-o", out}, 1, "not a shard");
  const std::string eval = RunShard(Command("eval"), 1, 1);
  ExpectError({"merge", eval, "-o", out}, 2, "leave out -o");
  EXPECT_FALSE(fs::exists(out));
}

// The model and the texts are still there afterwards.
TEST_F(ShardRefusals, NoShardReplacesWhatItIsMadeOf) {
  for (const char* name : {"eval", "imatrix", "profile", "trace"}) {
    for (const std::string& input : {kDemo, folder_.File("other.txt")}) {
      ExpectError(Command(name, {"--shard", "1/2", "-o", input}), 1, input);
    }
  }
  EXPECT_EQ(ReadAll(folder_.File("other.txt")), testing::kShardOther);
}

// By Ctrl-C, and by what cannot be caught.
TEST_F(ShardRefusals, AShardThatIsKilledLeavesNothing) {
  std::ofstream text(folder_.File("story.txt"));
  for (int i = 0; i < 3000; ++i) text << testing::kShardStory << "\n";
  text.close();
  for (const char* name : {"eval", "imatrix", "profile", "trace"}) {
    const std::string out = folder_.File("out");
    for (const int number : {SIGINT, SIGKILL}) {
      Program program(folder_.path(), {.arguments = Command(name, {"--shard", "1/2", "-o", out})});
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
      kill(program.id(), number);
      const Finished run = program.Wait();
      EXPECT_NE(run.exit_code, 0) << name;
      EXPECT_FALSE(fs::exists(out)) << name;
    }
  }
  for (const auto& entry : fs::directory_iterator(folder_.path())) {
    EXPECT_FALSE(entry.path().filename().string().contains("out")) << entry.path();
  }
}

TEST_F(ShardRefusals, AShardIsNoWholeFile) {
  const std::string out = folder_.File("out");
  const std::string imatrix = RunShard(Command("imatrix"), 1, 1);
  const auto expect = [&](Words words, const std::string& shard) {
    const Finished run = Run(std::move(words));
    EXPECT_EQ(run.exit_code, 1) << run.err;
    EXPECT_NE(run.err.find(shard + ": a shard of a run, not "), std::string::npos) << run.err;
    EXPECT_NE(run.err.find("'moestro merge' makes one of all its shards"), std::string::npos)
        << run.err;
    EXPECT_FALSE(fs::exists(out));
  };
  expect({"quantize", kDemo, "--experts", "q2_k", "--imatrix", imatrix, "-o", out}, imatrix);
  expect({"inspect", imatrix}, imatrix);
  const std::string trace = RunShard(Command("trace"), 2, 9);
  expect({"sim", trace, "--slots", "25%"}, trace);
  expect({"trace", "--summary", trace}, trace);
  expect({"profile", "--trace", trace, "-o", out}, trace);
  const std::string profile = RunShard(Command("profile"), 2, 2);
  expect({"run", kDemo, "-p", "One", "-n", "1", "--cache", "25%", "--predictor", "paths", "--paths",
          profile},
         profile);
  const std::string eval = RunShard(Command("eval"), 2, 2);
  expect(Command("eval", {"--against", "exact", "--reference", eval}), eval);
}

// Nor a file that only begins as a shard does.
TEST_F(ShardRefusals, WhatIsNoFileIsNamed) {
  const std::string out = folder_.File("out");
  const std::string good = RunShard(Command("trace"), 1, 2);
  const auto expect = [&](const std::string& path, const std::string& part) {
    ExpectError({"merge", good, path, "-o", out}, 1, part);
    ExpectError({"merge", path, good, "-o", out}, 1, path);
    EXPECT_FALSE(fs::exists(out));
  };
  expect(folder_.File("none"), "none: No such file");
  expect(folder_.path().string(), "not a file");
  const std::string pipe = folder_.File("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  expect(pipe, "not a file");
  expect(folder_.File("story.txt"), "not a shard, it does not begin with MOESHARD");
  const std::string begins = folder_.File("begins");
  std::ofstream(begins) << "MOESHARD";
  expect(begins, begins);
  std::ofstream(begins) << "MOESHARD" << std::string(4, '\xff') << std::string(1000, 'x');
  expect(begins, "newer than the 2 that is known here");
}

TEST_F(ShardRefusals, OneFileUnderTwoNamesIsOneFile) {
  const Words shards = RunShards(Command("profile"), 2);
  const std::string hard = folder_.File("hard");
  const std::string soft = folder_.File("soft");
  fs::create_hard_link(shards[0], hard);
  fs::create_symlink(shards[0], soft);
  for (const std::string& name : {hard, soft}) {
    ExpectError(MergeOf(shards, {"-o", name}), 1, name + " is read here");
    ExpectError(MergeOf(shards, {"-o", folder_.File("out"), "--norms-output", name}), 1,
                name + " is read here");
    ExpectError({"merge", shards[0], name, shards[1], "-o", folder_.File("out")}, 1,
                "are both shard 2 of 2");
  }
  const std::string out = folder_.File("out");
  ExpectError(MergeOf(shards, {"-o", out, "--norms-output", folder_.path() / "." / "out"}), 2,
              "give two names");
  ExpectError(Command("profile", {"-o", out, "--norms-output", out}), 2, "give two names");
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(ShardRefusals, AFullDiskLeavesNothing) {
  const std::string out = folder_.File("out");
  for (const char* name : {"eval", "imatrix", "profile", "trace"}) {
    const Words shards = RunShards(Command(name), 2);
    const FileSizeLimit full(40);
    ExpectError(Command(name, {"--shard", "1/2", "-o", out}), 1, out);
    EXPECT_FALSE(fs::exists(out));
    ExpectError(Command(name, {"--shard", "1/2", "-o", folder_.File("none/out")}), 1, "none");
    if (std::string_view(name) == "eval") continue;
    ExpectError(MergeOf(shards, {"-o", out}), 1, out);
    EXPECT_FALSE(fs::exists(out));
    ExpectError(MergeOf(shards, {"-o", folder_.File("none/out")}), 1, "none");
  }
  for (const auto& entry : fs::directory_iterator(folder_.path())) {
    EXPECT_FALSE(entry.path().filename().string().contains("out")) << entry.path();
  }
}

// Also by the shards that would have had no window. An empty text is one token of some
// vocabularies, of which nothing can be evaluated.
TEST_F(ShardRefusals, TextsWithNothingToReadAreRefusedByEachShard) {
  const std::string out = folder_.File("out");
  const std::string empty = folder_.File("empty.txt");
  std::ofstream(empty) << "";
  const std::string folder = folder_.path().string();
  const std::string none = folder_.File("none.txt");
  for (const char* shard : {"1/3", "2/3"}) {
    const auto expect = [&](const char* name, const std::string& text, const std::string& part) {
      ExpectError({name, kDemo, "--text", text, "--shard", shard, "-o", out}, 1, part);
    };
    expect("eval", empty, "longer text");
    for (const char* name : {"eval", "imatrix", "profile", "trace"}) {
      expect(name, folder, folder);
      expect(name, none, none);
    }
  }
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace moestro
