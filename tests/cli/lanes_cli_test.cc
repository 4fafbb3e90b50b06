// SPDX-License-Identifier: MIT
// `moestro sim --machine` from outside.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tests/cli/program_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

using testing::Finished;
using testing::Program;

const std::string kBench = MOESTRO_SOURCE_DIR "/bench/";
const std::string kTrace = kBench + "traces/demo-maths.trace";
const std::string kDesk = kBench + "machines/rtx-4090-pcie4.json";

class LanesCliTest : public ::testing::Test {
 protected:
  Finished Run(std::vector<std::string> arguments) const {
    return Program(folder_.path(), {.arguments = std::move(arguments), .input = {}}).Wait();
  }
  // With --json.
  Json Lines(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"sim", kTrace, "--json"});
    const Finished run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    auto json = Json::Parse(run.out);
    EXPECT_TRUE(json) << run.out;
    return json ? *std::move(json) : Json();
  }
  static double Number(JsonView line, std::string_view key) {
    const auto phase = line.Find("decode");
    const auto value = phase ? phase->Find(key) : std::nullopt;
    return value ? value->number().value_or(-1.0) : -1.0;
  }
  void ExpectError(std::vector<std::string> arguments, int exit_code,
                   const std::string& part) const {
    arguments.insert(arguments.begin(), {"sim", kTrace});
    const Finished run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, exit_code) << part;
    EXPECT_TRUE(run.err.contains(part)) << "wanted " << part << "\n" << run.err;
    EXPECT_TRUE(run.out.empty()) << run.out;
  }

  TempFolder folder_;
};

// The desk with two GPUs: each is named, and what they did adds up.
TEST_F(LanesCliTest, AMachineWithTwoDevices) {
  const std::string two = (folder_.path() / "two.json").string();
  std::ofstream(two) << R"({"format": "moestro latency", "version": 1, "machine": "two",
      "host": {"base_us": 5, "gb_per_s": 20}, "disk": {"base_us": 20, "gb_per_s": 3},
      "device": [{"name": "fast", "launch_us": 10, "base_us": 1, "gb_per_s": 500},
                 {"name": "slow", "launch_us": 20, "base_us": 2, "gb_per_s": 100}],
      "copy": [{"base_us": 5, "gb_per_s": 25}, {"base_us": 5, "gb_per_s": 12}]})";
  const Json lines = Lines({"--machine", two, "--vram", "20%", "--place", "gpu-centric"});
  ASSERT_EQ(lines.size(), 1U);
  const auto devices = lines.At(0)->Find("decode")->Find("devices");
  ASSERT_TRUE(devices);
  ASSERT_EQ(devices->size(), 2U);
  double ran = 0.0;
  for (size_t d = 0; d < 2; ++d) {
    const double its = devices->At(d)->Find("ran_there")->number().value_or(0.0);
    EXPECT_GT(its, 0.0);
    ran += its;
  }
  EXPECT_DOUBLE_EQ(ran, Number(*lines.At(0), "ran_there"));
  EXPECT_EQ(devices->At(1)->Find("name")->text(), "slow");
  const Finished text = Run({"sim", kTrace, "--machine", two});
  EXPECT_NE(text.out.find("fast: computing "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("slow: computing "), std::string::npos) << text.out;
}

// Boards have speeds for plans, and no lanes (BoardPlanTest).
bool HasLanes(const std::filesystem::path& path) {
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  return text.contains("\"moestro latency\"");
}

TEST_F(LanesCliTest, EveryMachineThatComesAlongCanBeRead) {
  size_t seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kBench + "machines")) {
    if (!HasLanes(entry.path())) continue;
    ++seen;
    const Finished run = Run({"sim", kTrace, "--machine", entry.path().string()});
    EXPECT_EQ(run.exit_code, 0) << entry.path() << run.err;
    EXPECT_TRUE(run.out.contains("tok/s")) << run.out;
  }
  EXPECT_GE(seen, 6U);
}

TEST_F(LanesCliTest, ALineForEachModeSizeAndNumberOfRows) {
  const Json lines = Lines({"--machine", kDesk, "--place", "all", "--vram", "24,50%", "--rows",
                            "1,4", "--slots", "100%", "--preload", "--held-out", "50"});
  ASSERT_EQ(lines.size(), 4U * 2 * 2);
  const auto find = [&](std::string_view place, double rows, double vram) {
    for (size_t i = 0; i < lines.size(); ++i) {
      const JsonView line = *lines.At(i);
      if (line.Find("place")->text() == place && line.Find("rows")->number() == rows &&
          line.Find("device_slots")->number() == vram) {
        return line;
      }
    }
    ADD_FAILURE() << place;
    return *lines.At(0);
  };
  const JsonView cpu = find("cpu", 1, 24);
  EXPECT_EQ(Number(cpu, "on_host"), Number(cpu, "experts"));
  EXPECT_EQ(Number(cpu, "on_disk"), 0.0);
  EXPECT_GT(Number(cpu, "tps"), 0.0);
  const JsonView gpu = find("gpu-centric", 1, 24);
  EXPECT_EQ(Number(gpu, "on_host"), 0.0);
  EXPECT_GT(Number(gpu, "copied"), 0.0);
  // Popular ones are there from the start; more room for them means more of them are used.
  const JsonView some = find("cooperative", 1, 24);
  const JsonView more = find("cooperative", 1, 48);
  EXPECT_GT(Number(some, "ran_there"), 0.25 * Number(some, "experts"));
  EXPECT_GT(Number(more, "ran_there"), Number(some, "ran_there"));
  // Four rows share experts.
  const JsonView four = find("cpu", 4, 24);
  EXPECT_NEAR(Number(four, "tokens"), Number(cpu, "tokens"), 3.0);  // less half a step
  EXPECT_LT(Number(four, "experts"), Number(cpu, "experts"));
}

// Remote hosts: nothing is copied, every layer has its share there, and what they are worth is
// said.
TEST_F(LanesCliTest, RemoteHostsArePricedAgainstNone) {
  const std::string fast = kBench + "machines/two-boxes-10gbe.json";
  const std::vector<std::string> common = {"--machine", fast,      "--vram",         "25%",
                                           "--slots",   "25%",     "--expert-bytes", "4M",
                                           "--policy",  "next-use"};
  const Json lines = Lines(common);
  ASSERT_EQ(lines.size(), 2U) << "with and without";
  EXPECT_EQ(lines.At(1)->Find("place")->text(), "cpu");
  EXPECT_EQ(Number(*lines.At(0), "copied"), 0.0);
  EXPECT_EQ(Number(*lines.At(0), "promoted"), 0.0);
  EXPECT_NEAR(Number(*lines.At(0), "in_device") / Number(*lines.At(0), "experts"), 0.5, 0.1);
  const double gain = Number(*lines.At(0), "tps") / Number(*lines.At(1), "tps");
  EXPECT_GT(gain, 1.5) << "half of the experts are there, a quarter here";
  const auto text = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"sim", kTrace});
    const Finished run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.out;
  };
  EXPECT_TRUE(text(common).contains("the hosts pay: decode is ")) << text(common);
  // Experts so small that the disk is as quick as the network.
  std::vector<std::string> small = common;
  small[1] = kBench + "machines/two-boxes-1gbe.json";
  small[7] = "64K";
  EXPECT_TRUE(text(small).contains("the hosts do not pay: decode is ")) << text(small);
}

TEST_F(LanesCliTest, RemoteThatIsNoTruthIsRefused) {
  const std::string path = (folder_.path() / "odd.json").string();
  std::ofstream(path) << R"({"format": "moestro latency", "version": 1, "machine": "odd",
      "host": {"base_us": 5, "gb_per_s": 20}, "disk": {"base_us": 20, "gb_per_s": 3},
      "device": {"name": "box", "remote": 1, "launch_us": 10, "base_us": 1, "gb_per_s": 500},
      "copy": {"base_us": 5, "gb_per_s": 25}})";
  ExpectError({"--machine", path}, 1, "'remote' of 'box' is neither true nor false");
}

TEST_F(LanesCliTest, WhoIsThereFirstCanBeChosen) {
  const std::vector<std::string> common = {"--machine", kDesk,     "--place", "cooperative",
                                           "--vram",    "24",      "--slots", "100%",
                                           "--preload", "--first", "none"};
  EXPECT_EQ(Number(*Lines(common).At(0), "ran_there"), 0.0);
  std::vector<std::string> layers = common;
  layers.back() = "layers";
  // 24 of 96 experts are a layer and a half of six.
  const Json by_layer = Lines(layers);
  EXPECT_NEAR(Number(*by_layer.At(0), "ran_there") / Number(*by_layer.At(0), "experts"), 0.25,
              0.05);
  // What was learned of the routing.
  const std::string paths = (folder_.path() / "maths.paths").string();
  const Finished profile = Run({"profile", "--trace", kTrace, "-o", paths});
  ASSERT_EQ(profile.exit_code, 0) << profile.err;
  std::vector<std::string> learned = common;
  learned.back() = "popular";
  learned.insert(learned.end(), {"--paths", paths});
  EXPECT_GT(Number(*Lines(learned).At(0), "ran_there"), 1.2 * Number(*by_layer.At(0), "ran_there"));
}

// Both halves of a line: what memory was asked for and read, and what the lanes did.
TEST_F(LanesCliTest, PrefetchingAndLossyChoicesBesideADevice) {
  const std::vector<std::string> common = {"--machine", kDesk, "--vram", "25%", "--slots", "25%"};
  const auto line = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = common;
    all.insert(all.end(), more.begin(), more.end());
    const Json lines = Lines(all);
    EXPECT_EQ(lines.size(), 1U);
    const auto top = [&lines](std::string_view key) {
      return lines.At(0)->Find(key)->number().value_or(-1.0);
    };
    struct Line {
      double seconds, prefetches, misses, disk, skipped;
    };
    EXPECT_GT(Number(*lines.At(0), "ran_there"), 0.0);
    return Line{.seconds = top("seconds"),
                .prefetches = top("prefetches"),
                .misses = top("misses"),
                .disk = top("disk_bytes"),
                .skipped = top("dropped") + top("skipped")};
  };
  const auto plain = line({});
  EXPECT_GT(plain.misses, 0.0);
  EXPECT_EQ(plain.prefetches, 0.0);
  const auto oracle = line({"--predictor", "oracle", "--prefetch", "1"});
  EXPECT_GT(oracle.prefetches, 0.0);
  EXPECT_LT(oracle.seconds, plain.seconds);
  const auto informed = line({"--predictor", "oracle", "--prefetch", "0"});
  EXPECT_EQ(informed.prefetches, 0.0);
  EXPECT_GT(line({"--bandwidth", "500M"}).seconds, plain.seconds);
  const auto drops = line({"--drop-below", "0.2"});
  EXPECT_GT(drops.skipped, 0.0);
  EXPECT_LT(drops.disk, plain.disk);
  EXPECT_LT(line({"--low-bytes", "20K", "--low-slots", "25%", "--t1", "0.2", "--t2", "0.9"}).disk,
            plain.disk);
}

TEST_F(LanesCliTest, SweepsAndTunedPoliciesBesideADevice) {
  const Finished sweep = Run({"sim", kTrace, "--machine", kDesk, "--sweep", "--slots", "25%,50%",
                              "--place", "all", "--plot", (folder_.path() / "s.svg").string()});
  EXPECT_EQ(sweep.exit_code, 0) << sweep.err;
  EXPECT_TRUE(sweep.out.contains("place,rows,device_slots")) << sweep.out;
  EXPECT_TRUE(sweep.out.contains(",cooperative,1,24,")) << sweep.out;
  EXPECT_FALSE(sweep.out.contains("belady")) << sweep.out;
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "s.svg"));
  const std::string tuned = (folder_.path() / "maths.policy.json").string();
  const Finished tune =
      Run({"sim", kTrace, "--machine", kDesk, "--tune", "lfru", "--slots", "25%", "-o", tuned});
  EXPECT_EQ(tune.exit_code, 0) << tune.err;
  const Json lines = Lines({"--machine", kDesk, "--policy-file", tuned, "--slots", "25%"});
  EXPECT_EQ(lines.At(0)->Find("policy")->text(), "lfru");
  EXPECT_GT(Number(*lines.At(0), "ran_there"), 0.0);
}

TEST_F(LanesCliTest, FewerExpertsFirstBesideADevice) {
  const std::string model = MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf";
  const std::string both = (folder_.path() / "both.trace").string();
  const Finished traced = Run({"trace", model, "--random", "40", "--little", "half", "-o", both});
  ASSERT_EQ(traced.exit_code, 0) << traced.err;
  const Finished run = Run({"sim", both, "--little", "half", "--gamma", "0.5", "--machine", kDesk,
                            "--json", "--slots", "25%"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto lines = Json::Parse(run.out);
  ASSERT_TRUE(lines) << run.out;
  const double kept = lines->At(0)->Find("little_kept")->number().value_or(-1.0);
  const double again = lines->At(0)->Find("little_again")->number().value_or(-1.0);
  EXPECT_EQ(kept + again, Number(*lines->At(0), "tokens"));
  EXPECT_GT(Number(*lines->At(0), "experts"), 0.0);
}

TEST_F(LanesCliTest, SaysWhatCannotWork) {
  const std::string plain = kBench + "machines/epyc-2core.json";
  ExpectError({"--machine", kDesk, "--place", "gpu"}, 2, "'gpu' is no way to place experts");
  ExpectError({"--machine", kDesk, "--vram", "0"}, 2, "'0' is no number of slots");
  ExpectError({"--machine", kDesk, "--vram", "120%"}, 2, "120%");
  ExpectError({"--machine", kDesk, "--rows", "0"}, 2, "--rows");
  ExpectError({"--machine", kDesk, "--rows", "2,x"}, 2, "'x' rows");
  ExpectError({"--machine", kDesk, "--first", "best"}, 2, "--first");
  ExpectError({"--machine", kDesk, "--slots", "3"}, 2, "3 slots do not hold the 4");
  ExpectError({"--machine", kDesk, "--policy", "belady"}, 2, "belady");
  ExpectError({"--machine", kDesk, "--compute", "5"}, 2, "what computing takes there");
  ExpectError({"--machine", kDesk, "--tune", "lfru", "--place", "all"}, 2, "one --place");
  ExpectError({"--machine", kDesk, "--predictor", "next-router", "--prefetch", "8"}, 2, "predicts");
  ExpectError({"--place", "cpu"}, 2, "--machine");
  ExpectError({"--preload"}, 2, "--machine");
  ExpectError({"--machine", plain, "--vram", "25%"}, 2, "has no device");
  ExpectError({"--machine", "none.json"}, 1, "none.json");
  const std::string bad = (folder_.path() / "bad.json").string();
  std::ofstream(bad) << R"({"format": "moestro latency", "version": 1, "machine": "m",
                            "host": {"base_us": -1, "gb_per_s": 1}})";
  ExpectError({"--machine", bad}, 1, "'base_us' is -1");
}

}  // namespace
}  // namespace moestro
