// SPDX-License-Identifier: MIT
// `moestro plan` from outside: files here and elsewhere, what is fetched of them, what is said.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/number.h"
#include "learned/machine_files.h"
#include "tests/cli/program_testing.h"
#include "tests/support/hub_server_testing.h"
#include "tests/support/sanitized_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

using testing::Finished;
using testing::Program;

constexpr const char* kPlannedCommit = "0123456789abcdef0123456789abcdef01234567";

std::string Content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class PlanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    machine_ = folder_.path() / "machine.json";
    ASSERT_TRUE(WriteRates(machine_, {.cpu = "a box",
                                      .threads = 2,
                                      .memory = kGiB,
                                      .disk = 2e9,
                                      .kernels = {{.type = "q8_0", .decode = 1e9, .prompt = 1e9},
                                                  {.type = "q4_0", .decode = 1e9, .prompt = 1e9},
                                                  {.type = "f32", .decode = 1e9, .prompt = 1e9},
                                                  {.type = "f16", .decode = 1e9, .prompt = 1e9}}}));
    model_ = WriteTinyModel(folder_.path(), {.arch = "qwen3moe", .layers = 4, .experts = 16});
  }
  Finished Run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "plan");
    return Program(folder_.path(), {.arguments = std::move(arguments)}).Wait();
  }
  // Of a plan with --json.
  std::optional<Json> Plan(std::vector<std::string> arguments) const {
    arguments.push_back("--json");
    const Finished run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    auto json = Json::Parse(run.out);
    EXPECT_TRUE(json) << run.out;
    return json ? std::optional(*std::move(json)) : std::nullopt;
  }
  static std::string Dump(const Json& json, const char* key) {
    const auto value = json.Find(key);
    return value ? value->Dump() : "none";
  }

  TempFolder folder_;
  std::string machine_;
  std::string model_;
};

TEST_F(PlanTest, MoreMemoryIsFasterAndRangesAreNarrow) {
  const auto plan = Plan({model_, "--machine", machine_});
  ASSERT_TRUE(plan);
  EXPECT_EQ(Dump(*plan, "engine"), "\"native\"");
  EXPECT_EQ(Dump(*plan, "fits"), "true");
  EXPECT_EQ(Dump(*plan, "bytes_to_fetch"), "0");
  const auto budgets = plan->Find("budgets");
  ASSERT_TRUE(budgets);
  ASSERT_GE(budgets->size(), 2U);
  double before = 0.0;
  for (size_t i = 0; i < budgets->size(); ++i) {
    const auto decode = budgets->At(i)->Find("decode_tps");
    const double low = *decode->Find("low")->number();
    const double high = *decode->Find("high")->number();
    EXPECT_GE(low, before);
    EXPECT_LE(high, 2.001 * low);
    before = low;
  }
}

// Hosts are priced without being asked.
TEST_F(PlanTest, HostsArePriced) {
  const Finished run = Run({model_, "--machine", machine_, "--remote", "127.0.0.1:1=4M,box:2=4M",
                            "--network", "10/0.05"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(run.out.contains("hosts      127.0.0.1:1, box:2: 8.0 MiB, ")) << run.out;
  EXPECT_TRUE(run.out.contains("at 10 Gbit/s and 0.05 ms")) << run.out;
  const auto plan = Plan({model_, "--machine", machine_, "--remote", "127.0.0.1:1=4M"});
  ASSERT_TRUE(plan);
  const auto hosts = plan->Find("hosts");
  ASSERT_TRUE(hosts);
  EXPECT_EQ(hosts->Find("network_gbit_per_s")->number(), 1.0);
  EXPECT_EQ(hosts->Find("round_trip_ms")->number(), 0.2);
  // The tiny model fits, so the network is slower than the memory.
  EXPECT_EQ(hosts->Find("pays")->boolean(), false);
  EXPECT_GT(hosts->Find("share")->number().value_or(0.0), 0.0);
  const auto none = Plan({model_, "--machine", machine_});
  EXPECT_EQ(Dump(*none, "hosts"), "null");
}

// A GPU of a machine's file is priced without being asked.
TEST_F(PlanTest, AGpuOfTheMachineIsPriced) {
  const LatencyFile gpu{.devices = {"Card0"},
                        .model = {.devices = {{.compute = {.base = 5e-6, .per_byte = 1e-12},
                                               .copy = {.base = 1e-5, .per_byte = 1e-10},
                                               .launch = 1e-5}}},
                        .is_remote = {false},
                        .memory = {8 * kGiB}};
  ASSERT_TRUE(WriteMachine(machine_, *ReadRates(machine_), gpu));
  const Finished run = Run({model_, "--machine", machine_});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(run.out.contains("device     Card0, 7.6 GiB of its memory: the dense part and 100 %"))
      << run.out;
  EXPECT_TRUE(run.out.contains("it pays: ")) << run.out;
  const auto plan = Plan({model_, "--machine", machine_, "--vram", "90M"});
  ASSERT_TRUE(plan);
  const auto device = plan->Find("device");
  ASSERT_TRUE(device);
  EXPECT_EQ(device->Find("name")->text(), "Card0");
  EXPECT_EQ(device->Find("bytes")->number(), 90.0 * kMiB);
  EXPECT_TRUE(device->Find("decode_tps"));
  EXPECT_EQ(Dump(*Plan({model_, "--machine", machine_, "--device", "cpu"}), "device"), "null");

  EXPECT_EQ(Plan({model_, "--machine", machine_, "--device", "card0"})->Find("device")->kind(),
            JsonKind::kObject);

  LatencyFile two = gpu;
  two.devices.push_back("Card1");
  two.model.devices.push_back(two.model.devices.front());
  two.is_remote.push_back(false);
  two.memory.push_back(4 * kGiB);
  ASSERT_TRUE(WriteMachine(machine_, *ReadRates(machine_), two));
  const Finished second = Run({model_, "--machine", machine_, "--device", "card1"});
  EXPECT_TRUE(second.out.contains("device     Card1, 3.8 GiB")) << second.out << second.err;
  const Finished none = Run({model_, "--machine", machine_, "--device", "card2"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_TRUE(none.err.contains("no such device")) << none.err;

  LatencyFile odd = gpu;
  odd.devices = {"Card\n0"};
  ASSERT_TRUE(WriteMachine(machine_, *ReadRates(machine_), odd));
  const Finished one_line = Run({model_, "--machine", machine_});
  EXPECT_FALSE(one_line.out.contains("Card\n")) << one_line.out;

  LatencyFile unknown = gpu;
  unknown.memory = {0};
  ASSERT_TRUE(WriteMachine(machine_, *ReadRates(machine_), unknown));
  const Finished no_size = Run({model_, "--machine", machine_});
  EXPECT_EQ(no_size.exit_code, 2);
  EXPECT_TRUE(no_size.err.contains("set --vram")) << no_size.err;
}

TEST_F(PlanTest, HostsThatCannotBePriced) {
  const Finished no_size = Run({model_, "--machine", machine_, "--remote", "127.0.0.1:1"});
  EXPECT_EQ(no_size.exit_code, 2);
  EXPECT_TRUE(no_size.err.contains("write 127.0.0.1:1=SIZE")) << no_size.err;
  const Finished no_network = Run({model_, "--machine", machine_, "--network", "fast"});
  EXPECT_EQ(no_network.exit_code, 2);
  EXPECT_TRUE(no_network.err.contains("'fast' is no network")) << no_network.err;
  const std::filesystem::path other = folder_.path() / "other";
  std::filesystem::create_directory(other);
  const std::string biased = WriteTinyModel(other, {.arch = "gpt-oss"});
  const Finished refused = Run({biased, "--machine", machine_, "--remote", "127.0.0.1:1=64K"});
  EXPECT_EQ(refused.exit_code, 0) << refused.err;
  EXPECT_TRUE(refused.out.contains("of no use: --remote: this model's experts have biases"))
      << refused.out;
}

TEST_F(PlanTest, ABudgetThatIsTooSmallDoesNotFit) {
  const auto plan = Plan({model_, "--machine", machine_, "--ram", "20M"});
  ASSERT_TRUE(plan);
  EXPECT_EQ(Dump(*plan, "fits"), "false");
  const Finished run = Run({model_, "--machine", machine_, "--ram", "20M"});
  EXPECT_NE(run.out.find("the smallest budget that works is"), std::string::npos) << run.out;
}

TEST_F(PlanTest, AMachineWithoutATypeIsAnError) {
  ASSERT_TRUE(WriteRates(machine_, {.cpu = "a box",
                                    .threads = 2,
                                    .memory = kGiB,
                                    .disk = 2e9,
                                    .kernels = {{.type = "f32", .decode = 1e9, .prompt = 1e9}}}));
  const Finished run = Run({model_, "--machine", machine_});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.err.find("q8_0"), std::string::npos) << run.err;
}

// What is measured once is kept, and the run afterwards says what came of the plan.
TEST_F(PlanTest, ThisMachineIsMeasuredOnceAndARunSaysWhatCame) {
  const auto first = Plan({model_});
  const auto second = Plan({model_});
  ASSERT_TRUE(first && second);
  EXPECT_NE(first->Find("machine")->Dump().find("measured now"), std::string::npos);
  EXPECT_NE(second->Find("machine")->Dump().find("earlier"), std::string::npos);
  EXPECT_EQ(Dump(*first, "budgets"), Dump(*second, "budgets"));
  const Finished run =
      Program(folder_.path(), {.arguments = {"bench", model_, "-p", "4", "-n", "64", "--preload"}})
          .Wait();
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE((run.out + run.err).find("planned  "), std::string::npos) << run.out << run.err;
}

// A run in which memory lacks experts tells later plans of the model's routing.
TEST_F(PlanTest, ARunTellsOfRouting) {
  const std::vector<std::string> plan{model_, "--machine", machine_};
  EXPECT_EQ(Dump(*Plan(plan), "routing"), "\"range\"");
  const auto bench = [&](const char* share) {
    const Finished run =
        Program(folder_.path(),
                {.arguments = {"bench", model_, "-p", "4", "-n", "64", "--cache", share}})
            .Wait();
    EXPECT_EQ(run.exit_code, 0) << run.err;
  };
  bench("100%");
  EXPECT_EQ(Dump(*Plan(plan), "routing"), "\"range\"") << "nothing was missing";
  bench("50%");
  EXPECT_EQ(Dump(*Plan(plan), "routing"), "\"run\"");
  EXPECT_NE(Run(plan).out.find("the model's last run here"), std::string::npos);
}

// A repository of two files, one of them in two parts.
// What 'run' refuses was no model that fits.
TEST_F(PlanTest, ATokenizerThatRunRefusesIsRefused) {
  const std::string path = folder_.File("other.gguf");
  std::string bytes = Content(testing::kDemo);
  constexpr std::string_view kKey = "tokenizer.ggml.model";
  const size_t key = bytes.find(kKey);
  ASSERT_NE(key, std::string::npos);
  bytes[key + kKey.size() + sizeof(uint32_t) + sizeof(uint64_t)] = 'X';  // of the value
  std::ofstream(path, std::ios::binary) << bytes;
  const auto refusal = [&](std::vector<std::string> arguments) {
    const Finished finished = Program(folder_.path(), {.arguments = std::move(arguments)}).Wait();
    EXPECT_EQ(finished.exit_code, 1) << finished.out;
    return finished.err;
  };
  const std::string run = refusal({"run", path, "-p", "a"});
  EXPECT_TRUE(run.contains("tokenizer")) << run;
  EXPECT_EQ(refusal({"inspect", path}), run);
  EXPECT_EQ(refusal({"inspect", path, "--json"}), run);
  EXPECT_EQ(refusal({"plan", path, "--machine", machine_}), run);
}

class PlanHubTest : public PlanTest {
 protected:
  void SetUp() override {
    PlanTest::SetUp();
    setenv("HF_ENDPOINT", hub_.endpoint().c_str(), 1);
    setenv("HF_HUB_CACHE", (folder_.path() / "hub").c_str(), 1);
    hub_.Add("owner/Tiny-GGUF", kPlannedCommit, "Tiny-Q8_0.gguf", Content(model_));
    const std::string folder = folder_.path() / "split";
    std::filesystem::create_directories(folder);
    const std::string split = WriteTinyModel(
        folder, {.arch = "qwen3moe", .type = "Q4_0", .layers = 4, .experts = 16, .shards = 2});
    for (const char* name : {"-00001-of-00002.gguf", "-00002-of-00002.gguf"}) {
      const std::string first = split.substr(0, split.find("-00001-of-"));
      split_bytes_ += Content(first + name).size();
      hub_.Add("owner/Tiny-GGUF", kPlannedCommit, std::string("Tiny-Q4_0") + name,
               Content(first + name));
    }
  }
  void TearDown() override {
    unsetenv("HF_ENDPOINT");
    unsetenv("HF_HUB_CACHE");
  }

  HubServer hub_;
  size_t split_bytes_ = 0;
};

TEST_F(PlanHubTest, AsIfTheFileWereHere) {
  const auto there = Plan({"owner/Tiny-GGUF:q8_0", "--machine", machine_});
  const auto here = Plan({model_, "--machine", machine_});
  ASSERT_TRUE(there && here);
  // A sanitizer's memory differs from one look to the next.
  if (!kIsSanitized) {
    EXPECT_EQ(Dump(*there, "budgets"), Dump(*here, "budgets"));
  }
  EXPECT_EQ(Dump(*there, "bytes_to_fetch"), std::to_string(Content(model_).size()));
  EXPECT_EQ(there->Find("choices")->size(), 2U);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "hub"));
}

// The first range of a file that is longer, and no more of it.
TEST_F(PlanHubTest, OnlyTheDirectoryIsFetched) {
  const std::string folder = folder_.path() / "long";
  std::filesystem::create_directories(folder);
  const std::string content =
      Content(WriteTinyModel(folder, {.arch = "qwen3moe", .layers = 4, .experts = 16, .ff = 512}));
  ASSERT_GT(content.size(), 8 * kMiB);
  hub_.Add("owner/Long-GGUF", kPlannedCommit, "Long-Q8_0.gguf", content);
  hub_.Forget();
  ASSERT_TRUE(Plan({"owner/Long-GGUF:Q8_0", "--machine", machine_}));
  std::vector<std::string> ranges;
  for (const HubServer::Asked& asked : hub_.AskedForContent()) ranges.push_back(asked.range());
  EXPECT_EQ(ranges, std::vector<std::string>{"bytes=0-4194303"});
}

TEST_F(PlanHubTest, OfASplitFileEachPartsDirectory) {
  const auto plan = Plan({"hf:owner/Tiny-GGUF:Q4_0", "--machine", machine_});
  ASSERT_TRUE(plan);
  EXPECT_EQ(Dump(*plan, "files"), "2");
  EXPECT_EQ(Dump(*plan, "bytes_to_fetch"), std::to_string(split_bytes_));
}

TEST_F(PlanHubTest, WhatIsNotThereIsNamed) {
  const Finished run = Run({"owner/Tiny-GGUF:Q5_0", "--machine", machine_});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.err.find("Q4_0"), std::string::npos) << run.err;
  const Finished asks = Run({"owner/Tiny-GGUF", "--machine", machine_});
  EXPECT_EQ(asks.exit_code, 1);
  EXPECT_NE(asks.err.find("Q8_0"), std::string::npos) << asks.err;
}

TEST_F(PlanHubTest, OfflineNothingIsAsked) {
  hub_.Forget();
  const Finished run = Run({"owner/Tiny-GGUF:Q8_0", "--machine", machine_, "--offline"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.err.find("offline"), std::string::npos) << run.err;
  EXPECT_TRUE(hub_.asked().empty());
}

// A directory that lies about a length ends in a sentence, as from a file.
TEST_F(PlanHubTest, ADamagedDirectoryIsAnError) {
  std::string bytes = Content(model_);
  bytes.replace(24, 8, "\xff\xff\xff\xff\xff\xff\xff\x7f");
  hub_.Add("owner/Bad-GGUF", kPlannedCommit, "Bad-Q8_0.gguf", bytes);
  const Finished run = Run({"owner/Bad-GGUF:Q8_0", "--machine", machine_});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.err.find("Bad-Q8_0.gguf"), std::string::npos) << run.err;
}

}  // namespace
}  // namespace moestro
