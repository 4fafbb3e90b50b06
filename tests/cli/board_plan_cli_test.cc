// SPDX-License-Identifier: MIT
// Plans for boards (bench/machines), and runs in as little memory as they have.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/number.h"
#include "base/text.h"
#include "learned/machine_files.h"
#include "tests/cli/program_testing.h"
#include "tests/support/sanitized_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

using testing::Finished;
using testing::Program;

const std::string kMachines = MOESTRO_SOURCE_DIR "/bench/machines/";
constexpr std::array kBoards = {"pi5", "orin-nano", "rk3588"};

double Number(const Json& json, const std::vector<std::string>& path) {
  std::optional<JsonView> at = json.view();
  for (const std::string& key : path) {
    if (at) at = at->Find(key);
  }
  EXPECT_TRUE(at) << json.Dump();
  return at ? at->number().value_or(0.0) : 0.0;
}

class BoardPlanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = WriteTinyModel(folder_.path(),
                            {.arch = "qwen3moe", .layers = 4, .experts = 256, .used = 8});
    // A third of the experts or so has a place.
    const Json plan = Plan(kMachines + "pi5.json", "1G");
    ram_ = Format("{}M", static_cast<uint64_t>(Number(plan, {"smallest"})) / kMiB + 16);
  }
  Finished Run(std::vector<std::string> arguments) const {
    return Program(folder_.path(), {.arguments = std::move(arguments)}).Wait();
  }
  Json Plan(const std::string& machine, const std::string& ram) const {
    const Finished planned = Run({"plan", model_, "--machine", machine, "--ram", ram, "--json"});
    EXPECT_EQ(planned.exit_code, 0) << planned.err;
    auto json = Json::Parse(planned.out);
    EXPECT_TRUE(json) << planned.out;
    return json ? *std::move(json) : Json();
  }
  // A board's file with another member.
  std::string With(const std::string& board, const std::string& from, const std::string& to) const {
    std::ifstream in(kMachines + board + ".json");
    std::string text((std::istreambuf_iterator<char>(in)), {});
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << text;
    const std::string path = folder_.path() / "board.json";
    std::ofstream(path) << text.replace(at, from.size(), to);
    return path;
  }

  TempFolder folder_;
  std::string model_;
  std::string ram_;
};

// Published types are those of every model that people take to such a board.
TEST_F(BoardPlanTest, EveryBoardKnowsTheTypesOfPublishedModels) {
  for (const char* board : kBoards) {
    const auto rates = ReadRates(kMachines + board + ".json");
    ASSERT_TRUE(rates) << rates.error().message;
    for (const char* type : {"f32", "f16", "bf16", "q4_0", "q8_0", "q3_K", "q4_K", "q5_K", "q6_K",
                             "iq4_nl", "iq4_xs", "mxfp4"}) {
      EXPECT_NE(rates->Find(type), nullptr) << board << " " << type;
    }
    EXPECT_GT(rates->page, 0U);
    const Json plan = Plan(kMachines + board + ".json", ram_);
    EXPECT_GT(Number(plan, {"chosen", "decode_tps", "low"}), 0.0) << board;
  }
}

// The board's pages count, not those of the machine that plans.
TEST_F(BoardPlanTest, LargerPagesHoldFewerExperts) {
  const std::string page = "\"page_bytes\": 16384";
  const double large = Number(Plan(With("pi5", page, page), ram_), {"chosen", "slots"});
  const double small =
      Number(Plan(With("pi5", page, "\"page_bytes\": 4096"), ram_), {"chosen", "slots"});
  EXPECT_GT(large, 0.0);
  EXPECT_LT(large, small);
}

TEST_F(BoardPlanTest, FasterDisksArePlannedFaster) {
  double before = 0.0;
  for (const char* rate : {"0.04", "0.45", "3"}) {
    const std::string machine =
        With("pi5", "\"disk_gb_per_s\": 0.45", std::string("\"disk_gb_per_s\": ") + rate);
    const double now = Number(Plan(machine, ram_), {"chosen", "decode_tps", "high"});
    EXPECT_GT(now, before) << rate;
    before = now;
  }
}

// A group of processes that reads the disk of a file no faster than a rate (control groups, version
// 1); removed at the end.
class SlowDiskGroup {
 public:
  // nullopt: this system cannot, or this user may not.
  static std::optional<SlowDiskGroup> Create(const std::string& file, uint64_t bytes_per_second) {
    struct stat found = {};
    if (::stat(file.c_str(), &found) != 0) return std::nullopt;
    SlowDiskGroup group(Format("/sys/fs/cgroup/blkio/moestro-test-{}", ::getpid()));
    std::error_code failed;
    if (!std::filesystem::create_directory(group.folder_, failed)) return std::nullopt;
    std::ofstream limit(group.folder_ + "/blkio.throttle.read_bps_device");
    limit << Format("{}:{} {}", major(found.st_dev), minor(found.st_dev), bytes_per_second)
          << std::flush;
    return limit ? std::optional(std::move(group)) : std::nullopt;
  }
  SlowDiskGroup(SlowDiskGroup&& other) noexcept : folder_(std::exchange(other.folder_, {})) {}
  ~SlowDiskGroup() {
    if (!folder_.empty()) ::rmdir(folder_.c_str());
  }
  // The arguments of a shell that starts the program within the group.
  std::vector<std::string> Within(const std::vector<std::string>& arguments) const {
    std::vector<std::string> all = {
        "-c", Format("echo $$ > {}/cgroup.procs && exec \"$@\"", folder_), "sh", MOESTRO_BINARY};
    all.append_range(arguments);
    return all;
  }

 private:
  explicit SlowDiskGroup(std::string folder) : folder_(std::move(folder)) {}
  std::string folder_;
};

// Such a limit lets the first bytes of a moment through at once, as rented disks do.
TEST_F(BoardPlanTest, ARateOfTheDiskIsOneThatLasts) {
  constexpr uint64_t kLimit = 450'000'000;
  const std::optional<SlowDiskGroup> group = SlowDiskGroup::Create(model_, kLimit);
  if (!group) GTEST_SKIP() << "no limit can be set for the disk of " << model_;
  const Finished planned =
      Program(folder_.path(),
              {.arguments = group->Within({"plan", model_, "--ram", "1G", "--measure", "--json"}),
               .binary = "/bin/sh"})
          .Wait();
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const auto plan = Json::Parse(planned.out);
  ASSERT_TRUE(plan) << planned.out;
  EXPECT_GT(Number(*plan, {"machine", "disk_bytes_per_second"}), 0.0);
  EXPECT_LT(Number(*plan, {"machine", "disk_bytes_per_second"}), 1.5 * kLimit);
}

// The demo with as little memory as the program says it needs, on four threads: that is the peak.
TEST_F(BoardPlanTest, TheDemoRunsInTheSmallestBudgetThatItNames) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer takes memory of its own";
  const auto run = [&](const std::string& ram) {
    return Run({"run", "-p", "Once upon a time", "-n", "60", "--ram", ram, "-t", "4"});
  };
  const Finished refused = run("16M");
  const std::string before = "the smallest that works is --ram ";
  const size_t at = refused.err.find(before);
  ASSERT_NE(at, std::string::npos) << refused.err;
  const uint64_t smallest = std::stoull(refused.err.substr(at + before.size()));
  EXPECT_LE(smallest, 64U);
  const Finished done = run(Format("{}M", smallest));
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_FALSE(done.out.empty());
  EXPECT_LE(done.peak_bytes, smallest * kMiB) << done.err;
}

}  // namespace
}  // namespace moestro
