// SPDX-License-Identifier: MIT
// --ram is the peak of the process, for every command that evaluates, whatever the text is like.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/number.h"
#include "base/text.h"
#include "learned/machine_files.h"
#include "tests/cli/program_testing.h"
#include "tests/support/llama_zoo_testing.h"
#include "tests/support/product_testing.h"
#include "tests/support/sanitized_testing.h"
#include "tests/support/socket_client_testing.h"
#include "tests/support/switch_folder_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

using testing::Finished;
using testing::kDemo;
using testing::Program;

constexpr size_t kTextBytes = 6'000'000;
constexpr uint64_t kBudget = 96 * kMiB;

class MemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kIsSanitized) GTEST_SKIP() << "a sanitizer takes memory of its own";
  }
  // With a budget of `ram` bytes, which it has to keep.
  Finished Run(std::vector<std::string> arguments, uint64_t ram = kBudget) const {
    arguments.insert(arguments.end(), {"--ram", Format("{}M", ram / kMiB), "-t", "1"});
    std::string shown;
    for (const std::string& a : arguments) shown += a.substr(0, 100) + " ";
    Finished run = Program(folder_.path(), {.arguments = std::move(arguments)}).Wait();
    EXPECT_LE(run.peak_bytes, ram) << shown << "took " << FormatBytes(run.peak_bytes) << "\n"
                                   << run.err;
    return run;
  }
  void ExpectError(const Finished& run, const std::string& part) const {
    EXPECT_EQ(run.exit_code, 1) << run.err;
    EXPECT_NE(run.err.find(part), std::string::npos) << "wanted " << part << "\n" << run.err;
  }
  std::string Words() const {
    return Write("words.txt", [](std::mt19937& random) {
      return Format("{} {}{}", random() % 2 == 0 ? "the dog" : "a little girl", random() % 100,
                    random() % 10 == 0 ? ".\n" : " ");
    });
  }
  // One line, no space.
  std::string Line() const {
    return Write("line.txt", [](std::mt19937& random) {
      return std::string(1, static_cast<char>('a' + random() % 26));
    });
  }
  uint64_t Number(const std::string& json, const char* key) const {
    const auto object = Json::Parse(json);
    EXPECT_TRUE(object) << json;
    const auto value = object ? object->Find(key) : std::nullopt;
    return value ? static_cast<uint64_t>(value->number().value_or(0.0)) : 0;
  }
  TempFolder folder_;

 private:
  template <class Part>
  std::string Write(const std::string& name, Part part) const {
    std::mt19937 random(1);
    std::ofstream file(folder_.File(name), std::ios::binary);
    for (size_t bytes = 0; bytes < kTextBytes;) {
      const std::string text = part(random);
      file << text;
      bytes += text.size();
    }
    return folder_.File(name);
  }
};

TEST_F(MemoryTest, RunRefusesATextBeyondTheContext) {
  ExpectError(Run({"run", kDemo, "-f", Words()}), "context of 256");
  ExpectError(Run({"run", kDemo, "-f", Line()}), "context of 256");
}

TEST_F(MemoryTest, RunKeepsTheBudget) {
  const Finished run = Run({"run", kDemo, "-p", "Once upon a time", "-s", "1"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
}

TEST_F(MemoryTest, LogitsRefusesATextBeyondTheContext) {
  // One argument of a command cannot be longer.
  ExpectError(Run({"logits", kDemo, "-p", std::string(120'000, 'x')}), "context of 256");
  std::string words;
  while (words.size() < 120'000) words += "a little dog ";
  ExpectError(Run({"logits", kDemo, "-p", words}), "context of 256");
  EXPECT_EQ(Run({"logits", kDemo, "-p", "a little dog", "--all"}).exit_code, 0);
}

TEST_F(MemoryTest, TraceGoesOnInNewSequences) {
  const std::string trace = folder_.File("t.trace");
  const Finished run = Run({"trace", kDemo, "--text", Words(), "-n", "600", "-o", trace});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Finished summary =
      Program(folder_.path(), {.arguments = {"trace", "--summary", trace}}).Wait();
  EXPECT_NE(summary.out.find("600 decode, 0 prefill, in 3 sequences"), std::string::npos)
      << summary.out;
}

// Of 6 MB of words there are 2.3 million tokens, for which this budget has no room.
TEST_F(MemoryTest, TraceRefusesMoreTokensThanTheBudgetHolds) {
  const std::string text = Words();
  ExpectError(Run({"trace", kDemo, "--text", text, "-o", folder_.File("t.trace")}, 24 * kMiB),
              "words.txt: has more tokens than this budget holds");
}

TEST_F(MemoryTest, TraceKeepsTheBudgetOnALineWithoutSpaces) {
  const Finished run =
      Run({"trace", kDemo, "--text", Line(), "-n", "8", "-o", folder_.File("t.trace")});
  // Where the vocabulary proves no place to cut, the line does not fit.
  if (run.exit_code != 0) ExpectError(run, "no place to cut");
}

TEST_F(MemoryTest, ProfileKeepsTheBudget) {
  const Finished run = Run(
      {"profile", kDemo, "--text", Words(), "-n", "600", "-o", folder_.File("p.paths"), "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(Number(run.out, "tokens"), 600U);
}

TEST_F(MemoryTest, EvalKeepsTheBudget) {
  const std::vector<std::string> arguments = {"eval",     kDemo,   "--text",    Words(),
                                              "--tokens", "600",   "--against", "exact",
                                              "--json",   "--ctx", "64"};
  const Finished run = Run(arguments, 90 * kMiB);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(Number(run.out, "tokens"), 600U);
  EXPECT_EQ(Number(run.out, "kl_max"), 0U);
  ExpectError(Run({"eval", kDemo, "--text", Words()}, 24 * kMiB),
              "words.txt: has more tokens than this budget holds");
}

TEST_F(MemoryTest, ImatrixKeepsTheBudget) {
  const Finished run = Run(
      {"imatrix", kDemo, "--text", Words(), "-n", "600", "-o", folder_.File("i.gguf"), "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(Number(run.out, "tokens"), 600U);
}

// It takes no budget: some MiB for each thread, whatever the model.
TEST_F(MemoryTest, QuantizeTakesLittle) {
  const std::string model = WriteTinyModel(
      folder_.path(),
      {.type = "F32", .layers = 1, .experts = 64, .embd = 512, .ff = 512, .heads = 8});
  ASSERT_GT(std::filesystem::file_size(model), 2 * kBudget);
  const Finished run =
      Program(folder_.path(), {.arguments = {"quantize", model, "--experts", "q4_0", "-o",
                                             folder_.File("low.gguf"), "-t", "2"}})
          .Wait();
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_LE(run.peak_bytes, kBudget);
}

// Nor does a conversion: a layer of half a GiB, of which a few pieces are in memory at a time.
TEST_F(MemoryTest, ConvertTakesLittle) {
  const std::string source = folder_.File("switch");
  WriteTinySwitch(source, {.encoder_layers = 1,
                           .decoder_layers = 1,
                           .decoder_step = 0,
                           .embd = 2048,
                           .ff = 8192,
                           .experts = 4,
                           .has_values = false});
  ASSERT_GT(std::filesystem::file_size(source + "/model.safetensors"), 6 * kBudget);
  const Finished run =
      Program(folder_.path(),
              {.arguments = {"convert", source, "-o", folder_.File("out.gguf"), "-t", "2"}})
          .Wait();
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_LE(run.peak_bytes, kBudget);
}

TEST_F(MemoryTest, EvalOfQuestionsKeepsTheBudget) {
  const std::string items = folder_.File("q.csv");
  std::ofstream file(items);
  file << "Question,Best Answer,Incorrect Answers\n";
  for (int i = 0; i < 20'000; ++i) file << "What did the dog do?,It ran.,It ate;It sang\n";
  file.close();
  const Finished run = Run({"eval", kDemo, "--task", "truthfulqa", items, "--limit", "50",
                            "--shots", "5", "--against", "exact", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(Number(run.out, "items"), 50U);
  ExpectError(Run({"eval", kDemo, "--task", "truthfulqa", Words()}), "over 1.0 MiB");
}

TEST_F(MemoryTest, BenchKeepsTheBudget) {
  const Finished run = Run({"bench", kDemo, "-p", "200", "-n", "20", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_GT(Number(run.out, "peak_rss"), 0U);
  ExpectError(Run({"bench", kDemo, "-p", "4000000000"}), "context of 256");
  ExpectError(Run({"bench", kDemo, "--warmup", "4000000000"}), "context of 256");
}

// The smallest budget that a command names when it gets too little.
std::optional<uint64_t> SmallestBudget(const std::string& err) {
  const std::string marker = "the smallest that works is --ram ";
  const size_t at = err.find(marker);
  if (at == std::string::npos) return std::nullopt;
  return std::stoull(err.substr(at + marker.size())) * kMiB;
}

// A row of each sequence in a step, in no more than is needed for them and in a little more.
TEST_F(MemoryTest, BenchOfManySequencesKeepsTheBudget) {
  for (const std::string sequences : {"2", "8", "32"}) {
    const std::vector<std::string> arguments = {"bench",  kDemo,         "-p",     "40",      "-n",
                                                "10",     "-c",          "64",     "--chunk", "64",
                                                "--json", "--sequences", sequences};
    std::vector<std::string> with = arguments;
    with.insert(with.end(), {"--ram", "1M", "-t", "1"});
    const Finished refused = Program(folder_.path(), {.arguments = with}).Wait();
    const auto smallest = SmallestBudget(refused.err);
    ASSERT_TRUE(smallest) << refused.err;
    for (const uint64_t more : {0, 5}) {
      const Finished run = Run(arguments, *smallest + more * kMiB);
      ASSERT_EQ(run.exit_code, 0) << run.err;
      EXPECT_EQ(Number(run.out, "decode_tokens"), 10 * std::stoull(sequences));
    }
  }
}

// Settings of a bench that a budget depends on.
struct Setting {
  std::string arch;
  uint32_t prompt = 1;
  uint32_t decode = 1;
  uint32_t context = 64;
  uint32_t chunk = 1;
  uint32_t prefetch = 0;
  uint32_t sequences = 1;
  std::string reader;
  uint64_t more = 0;  // MiB beyond the smallest budget
};
using Settings = std::vector<Setting>;
void PrintTo(const Settings& some, std::ostream* out) { *out << some.size() << " settings"; }

// Sixty of a product of architectures and settings, at random. The cover has each kind of mixers,
// each number and each reader, and each context that there is with each chunk.
std::vector<Settings> SettingsOfPart(uint32_t part) {
  std::mt19937 random(20261121);
  const auto pick = [&](const auto&... values) {
    const std::vector all{values...};
    return all[random() % all.size()];
  };
  const std::vector<std::string> archs = TinyArchs();
  Settings all;
  for (int i = 0; i < 60; ++i) {
    all.push_back({.arch = archs[random() % archs.size()],
                   .prompt = static_cast<uint32_t>(1 + random() % 40),
                   .decode = static_cast<uint32_t>(1 + random() % 4),
                   .context = pick(64U, 256U, 1024U, 4096U, 8192U),
                   .chunk = pick(1U, 8U, 64U, 512U, 2048U),
                   .prefetch = static_cast<uint32_t>(random() % 3),
                   .sequences = pick(1U, 1U, 2U, 5U),
                   .reader = pick(std::string("uring"), std::string("pread")),
                   .more = random() % 12});
  }
  return {CellsOfPart(part, all, [](const Setting& one) {
    return Keys{MixersOf(one.arch), Format("prefetch {}", one.prefetch),
                Format("sequences {}", one.sequences), one.reader,
                Format("context {} & chunk {}", one.context, one.chunk)};
  })};
}

class RandomSettings : public MemoryTest, public ::testing::WithParamInterface<Settings> {};

TEST_P(RandomSettings, KeepTheirBudget) {
  size_t done = 0;
  for (const Setting& one : GetParam()) {
    const std::string model = WriteTinyModel(folder_.path(), {.arch = one.arch,
                                                              .type = "Q4_0",
                                                              .layers = 3,
                                                              .experts = 16,
                                                              .ff = 256,
                                                              .context = 8192,
                                                              .orig_context = 2048});
    const std::vector<std::string> arguments = {"bench",       model,
                                                "-p",          Format("{}", one.prompt),
                                                "-n",          Format("{}", one.decode),
                                                "-c",          Format("{}", one.context),
                                                "--chunk",     Format("{}", one.chunk),
                                                "--prefetch",  Format("{}", one.prefetch),
                                                "--sequences", Format("{}", one.sequences),
                                                "--reader",    one.reader,
                                                "--json"};
    std::vector<std::string> with = arguments;
    with.insert(with.end(), {"--ram", "1M"});
    const Finished refused = Program(folder_.path(), {.arguments = with}).Wait();
    const auto smallest = SmallestBudget(refused.err);
    if (!smallest) {
      // No io_uring here, for example; but never silently all of them.
      EXPECT_EQ(refused.exit_code, 1) << refused.err;
      continue;
    }
    const Finished run = Run(arguments, *smallest + one.more * kMiB);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    done += run.exit_code == 0 ? 1 : 0;
  }
  EXPECT_GE(10 * done, 4 * GetParam().size());
}

MOESTRO_INSTANTIATE_PARTS(RandomSettings, SettingsOfPart,
                          [](const auto&) { return std::string("Settings"); });

// An architecture that libllama computes, and the most positions of a text.
struct HostedCase {
  std::string arch;
  std::string context;
};
void PrintTo(const HostedCase& one, std::ostream* out) { *out << one.arch << " " << one.context; }

// A product of architectures and contexts. The cover has each kind of memory that libllama has with
// both contexts.
std::vector<HostedCase> HostedCasesOfPart(uint32_t part) {
  std::vector<HostedCase> cases;
  for (const std::string& arch : ZooArchs()) {
    for (const char* context : {"256", "16384"}) cases.push_back({arch, context});
  }
  return CellsOfPart(part, cases, [](const HostedCase& one) {
    return PairsOf({ZooMemory(one.arch)}, {one.context});
  });
}

class HostedBudget : public MemoryTest, public ::testing::WithParamInterface<HostedCase> {};

// libllama's buffers differ by architecture and context; the hosted engine plans what it is given.
TEST_P(HostedBudget, IsKept) {
  const auto& [arch, context] = GetParam();
  const std::string model = WriteZooModel(folder_.path(), arch, {.context = 16384});
  std::vector<std::string> arguments = {"bench", model, "--engine", "hosted", "-p",    "200",
                                        "-n",    "2",   "-c",       context,  "--json"};
  // Without this a small budget has a small chunk.
  if (context != "256") arguments.insert(arguments.end(), {"--chunk", "200"});
  std::vector<std::string> with = arguments;
  with.insert(with.end(), {"--ram", "1M", "-t", "1"});
  const Finished refused = Program(folder_.path(), {.arguments = with}).Wait();
  const auto smallest = SmallestBudget(refused.err);
  ASSERT_TRUE(smallest) << refused.err;
  const Finished run = Run(arguments, *smallest);
  EXPECT_EQ(run.exit_code, 0) << run.err;
}

MOESTRO_INSTANTIATE_PARTS(HostedBudget, HostedCasesOfPart, [](const auto& one) {
  return CaseName(one.param.arch) + "_" + one.param.context;
});

// A tiny model of an architecture, for one of the engines.
struct BudgetCase {
  std::string engine;
  std::string arch;
};
void PrintTo(const BudgetCase& one, std::ostream* out) { *out << one.engine << " " << one.arch; }

// One smallest budget, whoever names it: inspect, plan, and what evaluates when it gets too little.
class SmallestBudgetTest : public MemoryTest, public ::testing::WithParamInterface<BudgetCase> {
 protected:
  void SetUp() override {
    MemoryTest::SetUp();
    const auto& [engine, arch] = GetParam();
    model_ = engine == "native"
                 ? WriteTinyModel(folder_.path(), {.arch = arch,
                                                   .type = "Q4_0",
                                                   .layers = 3,
                                                   .experts = 32,
                                                   .context = 4096,
                                                   .vocab_path = kDemo})
                 : WriteZooModel(folder_.path(), arch, {.context = 4096, .vocab_path = kDemo});
    machine_ = folder_.File("machine.json");
    std::vector<KernelRate> kernels;
    for (const char* type : {"q4_0", "q8_0", "f32", "f16", "q6_K"}) {
      kernels.push_back({.type = type, .decode = 1e9, .prompt = 1e9});
    }
    ASSERT_TRUE(WriteRates(machine_, {.cpu = "a box",
                                      .threads = 1,
                                      .memory = kGiB,
                                      .disk = 2e9,
                                      .kernels = std::move(kernels)}));
    std::ofstream(folder_.File("text.txt")) << "Once upon a time there was a little dog.\n";
  }
  std::vector<std::string> Arguments(std::vector<std::string> command) const {
    command.insert(command.begin() + 1, model_);
    command.insert(command.end(), {"--engine", GetParam().engine, "-c", "4096"});
    return command;
  }
  Finished Start(std::vector<std::string> command) const {
    command.insert(command.end(), {"-t", "1"});
    return Program(folder_.path(), {.arguments = Arguments(std::move(command))}).Wait();
  }
  // As a command names it when it gets too little.
  uint64_t Named(std::vector<std::string> command) const {
    const std::string name = command.front();
    command.insert(command.end(), {"--ram", "1M"});
    const Finished refused = Start(std::move(command));
    EXPECT_EQ(refused.exit_code, 1) << name;
    const auto smallest = SmallestBudget(refused.err);
    EXPECT_TRUE(smallest) << name << ": " << refused.err;
    return smallest.value_or(0);
  }
  // Runs in exactly this budget.
  Finished Works(std::vector<std::string> command, uint64_t ram) const {
    const std::string name = command.front();
    Finished run = Run(Arguments(std::move(command)), ram);
    EXPECT_EQ(run.exit_code, 0) << name << " in " << ram / kMiB << " MiB: " << run.err;
    return run;
  }

  std::string model_;
  std::string machine_;
};

TEST_P(SmallestBudgetTest, IsTheSameForAllAndWorks) {
  const std::string text = folder_.File("text.txt");
  const Finished inspected = Start({"inspect", "--json"});
  ASSERT_EQ(inspected.exit_code, 0) << inspected.err;
  const uint64_t smallest = Number(inspected.out, "smallest_budget");
  ASSERT_GT(smallest, 0U);
  EXPECT_EQ(smallest % kMiB, 0U);
  const Finished planned = Start({"plan", "--json", "--machine", machine_});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_EQ(Number(planned.out, "smallest"), smallest);
  const std::vector<std::vector<std::string>> commands = {
      {"run", "-p", "Once upon", "-n", "3", "-s", "1"},
      {"bench", "-p", "200", "-n", "3", "--json"},
      {"logits", "-p", "a little dog"},
      {"eval", "--text", text, "--json"}};
  for (const std::vector<std::string>& command : commands) {
    if (command.front() != "eval") {  // has read its text before there is a plan
      EXPECT_EQ(Named(command), smallest) << command.front();
    }
    Works(command, smallest);
  }
}

// What loading takes for a while is the slots' afterwards: in 4 MiB more they get no more than
// that.
TEST_P(SmallestBudgetTest, GivesBackWhatLoadingTakes) {
  const std::vector<std::string> bench = {"bench", "-p", "8", "-n", "2", "--json"};
  const uint64_t smallest = Named(bench);
  const uint64_t more = 4 * kMiB;
  const uint64_t jitter = kMiB;  // of what the process holds by then
  const uint64_t least = Number(Works(bench, smallest).out, "slot_bytes");
  const uint64_t with_more = Number(Works(bench, smallest + more).out, "slot_bytes");
  EXPECT_LE(with_more, least + more + jitter);
}

// A server has requests beside the model, and names what it needs with them.
TEST_P(SmallestBudgetTest, OfAServerWorks) {
  const uint16_t port = SocketClient::FreePort();
  std::vector<std::string> serve = {"serve", "--port", std::to_string(port), "--parallel", "1"};
  const uint64_t smallest = Named(serve);
  serve.insert(serve.end(), {"--ram", Format("{}M", smallest / kMiB), "-t", "1"});
  Program server(folder_.path(), {.arguments = Arguments(serve)});
  const std::string body = R"({"prompt": "Once upon", "max_tokens": 3})";
  std::string health;
  std::string answer;
  for (int i = 0; i < 600 && !health.contains(R"({"status":"ok"})"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const SocketClient client(port);
    if (client.Send(Get("/health"))) health = client.ReceiveAll();
  }
  const SocketClient client(port);
  if (client.Send(Post("/v1/completions", body))) answer = client.ReceiveAll();
  EXPECT_TRUE(answer.contains("200 OK")) << answer;
  server.Interrupt();
  const Finished ended = server.Wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_LE(ended.peak_bytes, smallest);
}

// Engines and architectures. The cover has each kind of mixers, router, experts and norms that our
// engine computes, and libllama's models with states and without; HostedBudget has each kind of
// memory.
std::vector<BudgetCase> BudgetCasesOfPart(uint32_t part) {
  std::vector<BudgetCase> cases;
  for (const std::string& arch : TinyArchs()) cases.push_back({"native", arch});
  for (const std::string& arch : ZooArchs()) cases.push_back({"hosted", arch});
  return CellsOfPart(part, cases, [](const BudgetCase& one) {
    return PairsOf({one.engine}, one.engine == "native"
                                     ? TraitsOf(one.arch)
                                     : Keys{ZooHasStates(one.arch) ? "states" : "cells"});
  });
}

MOESTRO_INSTANTIATE_PARTS(SmallestBudgetTest, BudgetCasesOfPart, [](const auto& one) {
  return one.param.engine + "_" + CaseName(one.param.arch);
});

}  // namespace
}  // namespace moestro
