// SPDX-License-Identifier: MIT
// The program from outside: what it prints, where, and with which exit code.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "tests/cli/program_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::kDemo;
using testing::NumberAt;
using testing::Program;

class CliTest : public ::testing::Test {
 protected:
  CliTest()
      : folder_(fs::temp_directory_path() /
                Format("moestro_cli_{}_{}", getpid(),
                       ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::create_directories(folder_);
  }
  ~CliTest() override { fs::remove_all(folder_); }

  Finished Run(std::vector<std::string> arguments, std::string input = "") const {
    return Program(folder_, {.arguments = std::move(arguments), .input = std::move(input)}).Wait();
  }
  // Fails with `exit_code` and one line that contains `part`, printing nothing else.
  void ExpectError(std::vector<std::string> arguments, int exit_code,
                   const std::string& part) const {
    const std::string shown = arguments.empty() ? "" : arguments.back();
    const Finished run = Run(std::move(arguments));
    EXPECT_EQ(run.exit_code, exit_code) << shown << "\n" << run.err;
    EXPECT_TRUE(run.err.starts_with("moestro: ")) << run.err;
    EXPECT_EQ(std::ranges::count(run.err, '\n'), 1) << run.err;
    EXPECT_NE(run.err.find(part), std::string::npos) << "wanted " << part << "\n" << run.err;
    EXPECT_EQ(run.out, "");
  }
  std::string Write(const std::string& name, std::string_view bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }

  fs::path folder_;
};

Json ParseOne(const Finished& run) {
  EXPECT_EQ(run.exit_code, 0) << run.err;
  auto json = Json::Parse(run.out);
  EXPECT_TRUE(json) << run.out;
  return json ? *std::move(json) : Json::Object();
}

TEST_F(CliTest, HelpAndVersionAreNoErrors) {
  for (const char* command : {"run", "bench", "doctor", "eval", "inspect", "logits", "sim", "synth",
                              "trace", "quantize", "imatrix", "convert"}) {
    const Finished run = Run({command, "--help"});
    EXPECT_EQ(run.exit_code, 0) << command;
    EXPECT_NE(run.out.find("--help"), std::string::npos) << command;
    EXPECT_EQ(run.err, "");
    EXPECT_NE(Run({"--help"}).out.find(command), std::string::npos);
  }
  EXPECT_TRUE(Run({"--version"}).out.starts_with("moestro "));
}

TEST_F(CliTest, UsageMistakesGiveTwo) {
  ExpectError({}, 2, "commands are run");
  ExpectError({"dance"}, 2, "commands are run");
  ExpectError({"rnu"}, 2, "'moestro run'");
  ExpectError({"model.gguf"}, 2, "moestro run model.gguf");
  ExpectError({"run", "--promt", "x"}, 2, "--prompt");
  ExpectError({"run", "--dance"}, 2, "--dance");
  ExpectError({"run", "--ram", "lots"}, 2, "'lots'");
  ExpectError({"run", "--cache", "150%"}, 2, "150%");
  ExpectError({"run", kDemo, "-p", "a", "--threads", "20000"}, 2, "at most 512");
  ExpectError({"logits", kDemo, "--tokens", "1", "-t", "513"}, 2, "at most 512");
  ExpectError({"run", "-p", "a", "-f", "b"}, 2, "-f");
  ExpectError({"run", "-n", "few"}, 2, "few");
  ExpectError({"run", "-cnv", "--json"}, 2, "--json");
  ExpectError({"bench"}, 2, "MODEL");
  ExpectError({"bench", kDemo, "-r", "0"}, 2, "-r");
  ExpectError({"bench", kDemo, "-p", "0", "-n", "0"}, 2, "-p 0");
  ExpectError({"logits", kDemo}, 2, "--tokens");
  ExpectError({"logits", kDemo, "--tokens", "1,,2"}, 2, "1,,2");
}

TEST_F(CliTest, TheDoctorLooksAtThisMachineAndAModel) {
  const Json json = ParseOne(Run({"doctor", kDemo, "--json"}));
  const auto findings = json.Find("findings");
  ASSERT_TRUE(findings);
  EXPECT_GT(findings->size(), 10U);
  const Finished text = Run({"doctor"});
  EXPECT_EQ(text.exit_code, 0) << text.out;
  EXPECT_EQ(text.err, "");
  EXPECT_NE(text.out.find("io_uring"), std::string::npos) << text.out;
  const Finished bad = Run({"doctor", folder_ / "none.gguf"});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_NE(bad.out.find("none.gguf"), std::string::npos) << bad.out;
  EXPECT_NE(bad.out.find("bad   model"), std::string::npos) << bad.out;
  ExpectError({"doctor", "--user", "root"}, 2, "MODEL");
}

TEST_F(CliTest, BadFilesAreNamedByEachCommand) {
  const std::string missing = folder_ / "missing.gguf";
  const std::string noise = Write("noise.gguf", "this is no model at all");
  const std::string empty = Write("empty.gguf", "");
  std::ifstream demo(kDemo, std::ios::binary);
  std::string start(100'000, '\0');
  demo.read(start.data(), static_cast<std::streamsize>(start.size()));
  const std::string cut = Write("cut.gguf", start);
  const std::vector<std::vector<std::string>> commands = {
      {"run", "-p", "a"}, {"bench"}, {"inspect"}, {"logits", "--tokens", "1"}};
  for (const std::vector<std::string>& command : commands) {
    for (const std::string& path : {missing, noise, empty, cut, folder_.string()}) {
      std::vector<std::string> arguments = command;
      arguments.push_back(path);
      ExpectError(std::move(arguments), 1, path);
    }
  }
}

TEST_F(CliTest, RequestsThatCannotWorkSayWhy) {
  std::string longer;
  for (int i = 0; i < 400; ++i) longer += "word ";
  ExpectError({"run", kDemo, "-p", longer}, 1, "context of 256");
  ExpectError({"run", kDemo, "-p", "a\xff"}, 1, "UTF-8");
  ExpectError({"run", kDemo, "-p", "a", "--ram", "10M"}, 1, "smallest");
  ExpectError({"run", kDemo, "-p", "a", "--grammar", "root ::= (("}, 1, "grammar");
  ExpectError({"run", kDemo, "-cnv", "-p", "a"}, 1, "chat template");
  ExpectError({"run", kDemo, "-f", folder_ / "none.txt"}, 1, "none.txt");
  ExpectError({"logits", kDemo, "--tokens", "1,999999"}, 1, "999999");
  ExpectError({"bench", kDemo, "-p", "200", "-n", "100"}, 1, "context");
}

TEST_F(CliTest, TheDemoTellsTheSameStoryForTheSameSeed) {
  const std::vector<std::string> arguments = {"run", "-p",      "The dog", "-n", "24", "-s",
                                              "5",   "--cache", "25%",     "-t", "1"};
  const Finished first = Run(arguments);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_TRUE(first.out.starts_with("The dog")) << first.out;
  EXPECT_GT(first.out.size(), 30U);
  EXPECT_EQ(first.out, Run(arguments).out);
  std::vector<std::string> other = arguments;
  other[6] = "6";
  EXPECT_NE(first.out, Run(other).out);
  for (const char* part : {"prefill", "decode", "hits", "bound", "memory", "seed     5"}) {
    EXPECT_NE(first.err.find(part), std::string::npos) << part << "\n" << first.err;
  }
}

TEST_F(CliTest, ThePromptMayComeFromAFileOrAPipeAndStayHidden) {
  const std::vector<std::string> common = {"-n", "8", "--temp", "0", "-t", "1", "--no-perf"};
  const auto run = [&](std::vector<std::string> arguments, std::string input = "") {
    arguments.insert(arguments.begin(), "run");
    arguments.insert(arguments.end(), common.begin(), common.end());
    return Run(std::move(arguments), std::move(input));
  };
  const Finished flag = run({"-p", "The dog"});
  EXPECT_EQ(flag.exit_code, 0) << flag.err;
  EXPECT_EQ(flag.err, "");
  EXPECT_EQ(run({"-f", Write("prompt.txt", "The dog\n")}).out, flag.out);
  EXPECT_EQ(run({}, "The dog\n").out, flag.out);
  EXPECT_EQ("The dog" + run({"-p", "The dog", "--no-display-prompt"}).out, flag.out);
  EXPECT_TRUE(run({}).out.starts_with("Once upon a time"));
}

TEST_F(CliTest, StopStringsAndGrammarsShapeTheText) {
  const Finished grammar = Run({"run", kDemo, "-p", "The number is ", "--grammar",
                                "root ::= [0-9]{4}", "--no-display-prompt", "-t", "1", "-s", "1"});
  ASSERT_EQ(grammar.exit_code, 0) << grammar.err;
  EXPECT_EQ(grammar.out.size(), 5U) << grammar.out;
  EXPECT_EQ(grammar.out.find_first_not_of("0123456789\n"), std::string::npos) << grammar.out;
  const Finished stopped =
      Run({"run", kDemo, "-p", "Once", "-r", ".", "-n", "100", "-t", "1", "-s", "1"});
  ASSERT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_EQ(stopped.out.find('.'), std::string::npos) << stopped.out;
}

TEST_F(CliTest, RunGivesOneJsonObject) {
  const Json json =
      ParseOne(Run({"run", kDemo, "-p", "The dog", "-n", "4", "-s", "3", "--json", "-t", "1"}));
  EXPECT_EQ(json.Find("prompt")->text(), "The dog");
  EXPECT_EQ(json.Find("stop")->text(), "limit");
  EXPECT_FALSE(json.Find("text")->text()->empty());
  EXPECT_EQ(NumberAt(json, "seed"), 3.0);
  EXPECT_EQ(NumberAt(json, "decode_tokens"), 3.0);  // the fourth token needs no step
}

TEST_F(CliTest, BenchReportsEveryNumber) {
  const std::vector<std::string> arguments = {"bench", kDemo,    "-p",      "16",  "-n", "6", "-r",
                                              "2",     "--json", "--cache", "30%", "-t", "1"};
  const Json json = ParseOne(Run(arguments));
  EXPECT_EQ(json.Find("model")->text(), kDemo);
  EXPECT_EQ(NumberAt(json, "prefill_tokens"), 16.0);
  EXPECT_EQ(NumberAt(json, "decode_tokens"), 6.0);
  EXPECT_EQ(NumberAt(json, "threads"), 1.0);
  EXPECT_EQ(NumberAt(json, "runs"), 2.0);
  for (const char* key :
       {"ram_budget", "peak_rss", "prefill_tps", "decode_tps", "decode_ms_p50", "decode_ms_p95",
        "disk_bytes_decode", "io_depth", "disk_bandwidth_probe", "bound_tps", "percent_of_bound",
        "limit_tps", "percent_of_limit", "touched_bytes_decode", "fewest_bytes_decode",
        "memory_bandwidth_probe"}) {
    EXPECT_GT(NumberAt(json, key), 0.0) << key;
  }
  EXPECT_GE(NumberAt(json, "hit_rate"), 0.0);
  EXPECT_LT(NumberAt(json, "hit_rate"), 1.0);
  // Exact whatever the cache: the same tokens end in the same bits.
  std::vector<std::string> roomy = arguments;
  roomy[10] = "100%";
  EXPECT_EQ(ParseOne(Run(roomy)).Find("logits_hash")->text(), json.Find("logits_hash")->text());
}

TEST_F(CliTest, BenchOfSeveralSequencesReportsByRow) {
  std::vector<std::string> arguments = {"bench",   kDemo, "-p", "4", "-n",          "6",
                                        "--cache", "30%", "-t", "1", "--sequences", "8"};
  const Finished text = Run(arguments);
  EXPECT_NE(text.out.find("rows     8 in a step, "), std::string::npos) << text.out;
  arguments.emplace_back("--json");
  const Json json = ParseOne(Run(arguments));
  EXPECT_EQ(NumberAt(json, "decode_tokens"), 48.0);
  EXPECT_EQ(NumberAt(json, "row_uses"), 48.0 * 6.0 * 4.0);
  EXPECT_LE(NumberAt(json, "expert_uses"), 6.0 * 6.0 * 16.0);  // steps, layers, experts
  EXPECT_GT(NumberAt(json, "row_hit_rate"), 0.0);
  EXPECT_DOUBLE_EQ(NumberAt(json, "bytes_per_row"), NumberAt(json, "disk_bytes_decode") / 48.0);
}

TEST_F(CliTest, LogitsAreAllOrTheLargest) {
  const Json all = ParseOne(Run({"logits", kDemo, "--tokens", "5,6,7", "--all", "-t", "1"}));
  ASSERT_EQ(all.Find("logits")->size(), 4096U);
  EXPECT_EQ(all.Find("tokens")->size(), 3U);
  std::vector<double> values;
  const JsonView logits = *all.Find("logits");
  for (size_t i = 0; i < logits.size(); ++i) values.push_back(logits.At(i)->number().value());
  const Json top = ParseOne(Run({"logits", kDemo, "--tokens", "5,6,7", "--top", "3", "-t", "1"}));
  ASSERT_EQ(top.Find("logits")->size(), 3U);
  const JsonView best = *top.Find("logits")->At(0);
  EXPECT_EQ(NumberAt(best, "logit"), std::ranges::max(values));
  EXPECT_EQ(values[static_cast<size_t>(NumberAt(best, "token"))], std::ranges::max(values));
  EXPECT_GE(NumberAt(best, "logit"), NumberAt(*top.Find("logits")->At(1), "logit"));
}

TEST_F(CliTest, InspectDescribesTheModel) {
  const Json json = ParseOne(Run({"inspect", kDemo, "--json"}));
  EXPECT_EQ(json.Find("architecture")->text(), "olmoe");
  EXPECT_EQ(NumberAt(json, "layers"), 6.0);
  EXPECT_EQ(NumberAt(json, "experts_per_layer"), 16.0);
  EXPECT_EQ(NumberAt(json, "experts_used"), 4.0);
  EXPECT_EQ(NumberAt(json, "file_bytes"), static_cast<double>(fs::file_size(kDemo)));
  EXPECT_EQ(NumberAt(json, "slices"), 6.0 * 16.0 * 3.0);
  ASSERT_EQ(json.Find("pools")->size(), 1U);
  const JsonView pool = *json.Find("pools")->At(0);
  EXPECT_EQ(NumberAt(pool, "experts"), 96.0);
  EXPECT_EQ(
      NumberAt(pool, "gate_bytes") + NumberAt(pool, "up_bytes") + NumberAt(pool, "down_bytes"),
      NumberAt(pool, "expert_bytes"));
  EXPECT_EQ(96.0 * NumberAt(pool, "expert_bytes"), NumberAt(json, "expert_bytes"));
  const JsonView fits = *json.Find("fits");
  const JsonView all = *fits.At(fits.size() - 1);
  EXPECT_EQ(NumberAt(all, "slots"), 96.0);
  EXPECT_EQ(NumberAt(all, "experts"), 96.0);
  const Finished text = Run({"inspect", kDemo});
  for (const char* part : {"olmoe", "16 per layer, 4 used", "4096 tokens", "q8_0", "--ram"}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
  }
}

const std::string kTrace = MOESTRO_SOURCE_DIR "/bench/traces/demo-maths.trace";

TEST_F(CliTest, ATunedPolicyIsUsedByEveryCommand) {
  const std::string settings = folder_ / "maths.json";
  const Json tuned = ParseOne(
      Run({"sim", kTrace, "--tune", "hobbit", "--slots", "24,48", "--json", "-o", settings}));
  ASSERT_EQ(tuned.size(), 2U);
  const JsonView first = *tuned.At(0)->Find("tuned")->At(0);
  const auto choice = first.Find("choice")->text();
  ASSERT_TRUE(choice && choice->starts_with("hobbit:"));
  // What was promised for the held-out tokens is what a replay of them gives.
  const Json replayed = ParseOne(Run(
      {"sim", kTrace, "--policy-file", settings, "--slots", "24", "--held-out", "50", "--json"}));
  EXPECT_NEAR(NumberAt(*replayed.At(0), "hit_rate"), NumberAt(first, "hit_rate"), 1e-9);
  const std::vector<std::string> bench = {"bench",   kDemo, "-p", "4", "-n",    "4",
                                          "--cache", "25%", "-t", "1", "--json"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), bench.begin(), bench.end());
    return Run(std::move(more));
  };
  EXPECT_EQ(ParseOne(with({"--policy-file", settings})).Find("policy")->text(), choice);
  EXPECT_EQ(ParseOne(with({"--policy", "lru"})).Find("policy")->text(), "lru");
  EXPECT_EQ(ParseOne(with({})).Find("policy")->text(), "next-use");
  EXPECT_EQ(with({"--policy-file", settings, "--policy", "lru"}).exit_code, 2);
}

TEST_F(CliTest, TheTuningBesideTheModelIsFound) {
  const std::string model = folder_ / "m.gguf";
  fs::copy_file(kDemo, model);
  const auto bench = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"bench", model, "-p", "4", "-n", "2", "-t", "1", "--json"});
    return Run(std::move(more));
  };
  const std::string beside = model + ".policy.json";
  EXPECT_EQ(Run({"sim", kTrace, "--tune", "lfru", "--slots", "50%", "-o", beside}).exit_code, 0);
  EXPECT_TRUE(ParseOne(bench({})).Find("policy")->text()->starts_with("lfru:half_life="));
  EXPECT_TRUE(ParseOne(bench({"--policy", "auto"})).Find("policy")->text()->starts_with("lfru:"));
  // One of another model, and one that is no settings file.
  const std::string olmoe = MOESTRO_SOURCE_DIR "/bench/traces/olmoe-299.trace";
  EXPECT_EQ(Run({"sim", olmoe, "--tune", "lru", "--slots", "50%", "-o", beside}).exit_code, 0);
  for (int i = 0; i < 2; ++i) {
    const Finished refused = bench({});
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_NE(refused.err.find(beside), std::string::npos) << refused.err;
    EXPECT_NE(refused.err.find("delete it"), std::string::npos) << refused.err;
    Write("m.gguf.policy.json", "{\"format\"");
  }
  EXPECT_EQ(ParseOne(bench({"--policy", "fld"})).Find("policy")->text(), "fld");
}

TEST_F(CliTest, SimSaysWhatCannotWork) {
  ExpectError({"sim", kTrace, "--tune", "best"}, 2, "unknown policy 'best'");
  ExpectError({"sim", kTrace, "--tune", "hobbit", "--slots", "3"}, 2, "3 slots do not hold the 4");
  ExpectError({"sim", kTrace, "--tune", "hobbit", "--sweep"}, 2, "--sweep");
  ExpectError({"sim", kTrace, "--tune", "hobbit", "--train", "100"}, 2, "--train");
  ExpectError({"sim", kTrace, "--tune", "lru", "--slots", "25%", "-o", folder_ / "no" / "x"}, 1,
              "no");
  ExpectError({"sim", kTrace, "-o", "x"}, 2, "--tune");
  ExpectError({"sim", kTrace, "--plot", "x.svg"}, 2, "--sweep");
  ExpectError({"sim", kTrace, "--policy", "auto"}, 2, "--policy-file");
  ExpectError({"sim", kTrace, "--policy-file", folder_ / "none.json"}, 1, "none.json");
}

TEST_F(CliTest, ASweepIsATableAndADrawing) {
  const std::string plot = folder_ / "sweep.svg";
  const Finished run = Run({"sim", kTrace, "--sweep", "--slots", "25%,50%", "--plot", plot});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto rows = std::ranges::count(run.out, '\n');
  EXPECT_GT(rows, 10);
  std::ifstream file(plot);
  size_t lines = 0;
  for (std::string line; std::getline(file, line);) lines += line.starts_with("<polyline") ? 1 : 0;
  EXPECT_EQ(lines * 2 + 1, static_cast<size_t>(rows));  // two sizes each, and the table's head
}

TEST_F(CliTest, AClosedOutputEndsTheRunWithoutAnError) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  close(ends[0]);
  const Finished run =
      Program(folder_, {.arguments = {"run", kDemo, "-p", "Once", "-t", "1"}, .out_fd = ends[1]})
          .Wait();
  close(ends[1]);
  EXPECT_EQ(run.exit_code, 0) << run.err;
}

TEST_F(CliTest, AFullDiskIsReported) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (full < 0) GTEST_SKIP() << "no /dev/full here";
  const Finished run =
      Program(folder_, {.arguments = {"run", kDemo, "-p", "Once", "-t", "1"}, .out_fd = full})
          .Wait();
  close(full);
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.err.find("standard output"), std::string::npos) << run.err;
}

// The output pipe has room for a few words only, so the program cannot be done before it is
// interrupted, however slow or fast the machine is.
TEST_F(CliTest, CtrlCEndsWithTheSummary) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const int capacity = fcntl(ends[1], F_SETPIPE_SZ, 4096);
  ASSERT_EQ(capacity, 4096);
  const std::string filler(4000, 'x');
  ASSERT_EQ(write(ends[1], filler.data(), filler.size()), 4000);
  Program program(folder_, {.arguments = {"run", kDemo, "-p", "Once", "--no-display-prompt",
                                          "--ignore-eos", "-s", "1", "-t", "1"},
                            .out_fd = ends[1]});
  close(ends[1]);
  int waiting = 0;
  while (ioctl(ends[0], FIONREAD, &waiting) == 0 && waiting <= 4000) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // for the first word
  }
  program.Interrupt();
  std::string out;
  std::array<char, 4096> buffer{};
  for (ssize_t n = 0; (n = read(ends[0], buffer.data(), buffer.size())) > 0;) {
    out.append(buffer.data(), static_cast<size_t>(n));
  }
  close(ends[0]);
  const Finished run = program.Wait();
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.err.find("decode"), std::string::npos) << run.err;
  EXPECT_LT(out.size() - filler.size(), 300U) << "it went on after the interrupt";
}

}  // namespace
}  // namespace moestro
