// SPDX-License-Identifier: MIT
// Which flags change keys and values: docs/sequence-format.md has a verdict for each that `run` and
// `serve` know, and what an engine is opened with is held to it. Files of two runs are compared: a
// flag that does not count leaves them equal to the byte, one that counts makes each refuse the
// other's.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/common_flags.h"
#include "cli/flags.h"
#include "commands/commands.h"
#include "engine/append.h"
#include "engine/option_table.h"
#include "learned/learned_tables.h"
#include "model/model_file.h"
#include "native/native_engine.h"
#include "offline/quantize.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

// [flag]: the verdict, from the document's table.
std::map<std::string, std::string> Verdicts() {
  std::map<std::string, std::string> verdicts;
  std::ifstream document(MOESTRO_SOURCE_DIR "/docs/sequence-format.md");
  for (std::string line; std::getline(document, line);) {
    if (!line.starts_with("| `--")) continue;
    const size_t end = line.find('`', 3);
    const size_t begin = line.find("| ", end) + 2;
    const std::string flag = line.substr(3, end - 3);
    EXPECT_FALSE(verdicts.contains(flag)) << flag << " has two rows";
    verdicts[flag] = line.substr(begin, line.find(" |", begin) - begin);
  }
  return verdicts;
}

std::set<std::string> FlagsOfRunAndServe() {
  CommandLine line("moestro", "", "");
  AddRun(line);
  AddServe(line);
  std::set<std::string> names;
  for (const char* command : {"run", "serve"}) {
    for (const std::string& name : line.FlagNames(command)) names.insert(name);
  }
  return names;
}

TEST(KeptFlags, EveryFlagHasAVerdict) {
  const std::map<std::string, std::string> verdicts = Verdicts();
  const std::set<std::string> flags = FlagsOfRunAndServe();
  EXPECT_GT(flags.size(), 80U);
  for (const std::string& flag : flags) {
    EXPECT_TRUE(verdicts.contains(flag))
        << flag << ": does it change a bit of keys and values? Say so in docs/sequence-format.md; "
        << "if it does and no row of engine/option_table.cc says so, add it to FindChoices() in "
        << "native/kept_sequences.cc";
  }
  const std::set<std::string> known{"no", "yes", "lossy", "slots", "device", "rope", "rows"};
  for (const auto& [flag, verdict] : verdicts) {
    EXPECT_TRUE(flags.contains(flag)) << flag << " is no flag of run or serve";
    EXPECT_TRUE(known.contains(verdict)) << flag << " counts '" << verdict << "'";
  }
}

TEST(KeptFlags, TheTableOfOptionsAgreesWithTheDocument) {
  const std::map<std::string, std::string> verdicts = Verdicts();
  for (const OptionRow& row : OptionTable()) {
    const auto verdict = verdicts.find("--" + std::string(row.name()));
    ASSERT_NE(verdict, verdicts.end()) << row.name();
    EXPECT_EQ(verdict->second, NameOf(row.counts)) << row.name();
  }
}

class KeptFlagsTest : public ::testing::Test {
 protected:
  static constexpr const char* kModel = MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf";

  static CommonOptions Parse(std::vector<std::string> arguments) {
    CommonOptions options;
    CommandLine line("moestro", "", "");
    const Flags flags = line.AddCommand({"x", ""}, [] { return 0; });
    AddCommonFlags(flags, options);
    arguments.insert(arguments.begin(), "x");
    const auto parsed = line.Parse(std::move(arguments));
    EXPECT_TRUE(parsed) << parsed.error().message;
    options.engine.weights_folder = "";
    options.engine.device.cost_folder = "";
    return options;
  }
  std::unique_ptr<NativeEngine> Open(const std::vector<std::string>& arguments,
                                     const std::string& model = kModel) const {
    auto engine = NativeEngine::Open(model, Parse(arguments).engine);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? *std::move(engine) : nullptr;
  }
  // A prompt and some tokens after it, as a file.
  std::string Save(const std::vector<std::string>& arguments, const char* name,
                   const std::string& model = kModel) const {
    const auto engine = Open(arguments, model);
    Sequence sequence = engine->NewSequence();
    const uint32_t n_vocab = engine->spec().n_vocab;
    EXPECT_TRUE(Append(*engine, sequence, SeededTokens(40, n_vocab, 1)));
    for (const Token token : SeededTokens(12, n_vocab, 2)) {
      EXPECT_TRUE(Append(*engine, sequence, {&token, 1}));
    }
    std::string path = folder_.File(name);
    EXPECT_TRUE(engine->SaveSequence(sequence, "", path));
    return path;
  }
  static std::vector<std::string> Joined(std::vector<std::string> a,
                                         const std::vector<std::string>& b) {
    // A value in place of one that is there.
    const auto there = std::ranges::find(a, b.front());
    if (there != a.end()) {
      *(there + 1) = b.at(1);
      return a;
    }
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  void ExpectNoDifference(const std::vector<std::string>& base,
                          const std::vector<std::string>& flag) const {
    EXPECT_TRUE(ReadAll(Save(base, "a")) == ReadAll(Save(Joined(base, flag), "b")))
        << flag.front() << " changes what is kept, or its key";
  }
  // `name`: how the sentence calls it.
  void ExpectRefused(const std::vector<std::string>& base, const std::vector<std::string>& flag,
                     std::string_view name, const std::string& model = kModel) const {
    const std::vector<std::string> with = Joined(base, flag);
    const auto a = Open(with, model)->RestoreSequence(Save(base, "a", model));
    ASSERT_FALSE(a) << flag.front();
    EXPECT_EQ(a.error().code, Errc::kInvalidRequest);
    EXPECT_TRUE(a.error().message.contains(name)) << a.error().message;
    const auto b = Open(base, model)->RestoreSequence(Save(with, "b", model));
    ASSERT_FALSE(b) << flag.front();
    EXPECT_TRUE(b.error().message.contains(name)) << b.error().message;
  }
  std::string WriteLow(const char* types) const {
    std::string path = folder_.File(std::string(types) + ".low.gguf");
    const auto written = WriteLowCopies(
        {.model = kModel, .types = ParseLowTypes(types).value(), .path = path, .threads = 2});
    EXPECT_TRUE(written) << written.error().message;
    return path;
  }

  std::string WriteSomeNorms(const char* name, float first) const {
    const ModelId id = ModelFile::Open(kModel)->id;
    ExpertNorms norms{.shape = id.shape, .values = std::vector<float>(id.shape.experts(), 1.0F)};
    norms.values.front() = first;
    std::string path = folder_.File(name);
    EXPECT_TRUE(WriteNorms(path, {.model = id, .tokens = 9, .norms = std::move(norms)}));
    return path;
  }

  TempFolder folder_;
};

const std::vector<std::string> kBase = {"--device", "cpu", "--threads", "1",
                                        "--ctx",    "128", "--cache",   "30%"};

TEST_F(KeptFlagsTest, WhatDoesNotCountLeavesAnExactRunsFilesEqualToTheByte) {
  // Those with another verdict count only in the runs that it names.
  const std::vector<std::vector<std::string>> flags = {{"--ram", "4G"},
                                                       {"--threads", "2"},
                                                       {"--numa", "off"},
                                                       {"--reader", "pread"},
                                                       {"--io-depth", "8"},
                                                       {"--policy", "lru"},
                                                       {"--predictor", "frequency"},
                                                       {"--prefetch", "0"},
                                                       {"--seed", "9"},
                                                       {"--place", "cpu"},
                                                       {"--dense", "cpu"},
                                                       {"--tiers", "exclusive"},
                                                       {"--importance", "score"},
                                                       {"--keep", "2"},
                                                       {"--rescale"},
                                                       {"--upgrade"},
                                                       {"--json"},
                                                       {"--verbose"},
                                                       {"--vram", "100M"},
                                                       {"--lossy-mode", "opportunistic"}};
  for (const auto& flag : flags) ExpectNoDifference(kBase, flag);
  std::vector<std::string> all_resident = kBase;
  all_resident.back() = "100%";
  EXPECT_EQ(ReadAll(Save(all_resident, "a")), ReadAll(Save(kBase, "b")));
  std::vector<std::string> longer = kBase;
  longer[5] = "256";
  EXPECT_EQ(ReadAll(Save(longer, "a")), ReadAll(Save(kBase, "b")));
  ExpectNoDifference(kBase, {"--chunk", "32"});
}

// A low file that no choice takes, thresholds that leave everything exact.
TEST_F(KeptFlagsTest, LossyFlagsThatLeaveTheRunExactDoNotCount) {
  const std::string low = WriteLow("q4_0");
  ExpectNoDifference(kBase, {"--low", low, "--t1", "1", "--t2", "1"});
  ExpectNoDifference(kBase, {"--low", low, "--low-share", "0.5", "--t1", "1", "--t2", "1"});
  ExpectNoDifference(kBase, {"--little", "2", "--gamma", "1"});
}

TEST_F(KeptFlagsTest, TheTypeOfKeysAndValuesCounts) {
  ExpectRefused(kBase, {"--kv-type", "q8_0"}, "--kv-type");
}

TEST_F(KeptFlagsTest, WhatMakesARunLossyCounts) {
  const std::string low = WriteLow("q4_0");
  ExpectRefused(kBase, {"--low", low}, "--low");
  ExpectRefused(kBase, {"--drop-below", "0.2"}, "--drop-below");
  ExpectRefused(kBase, {"--prefer-resident", "0.2"}, "--prefer-resident");
  ExpectRefused(kBase, {"--little", "2"}, "--little");
}

TEST_F(KeptFlagsTest, EverySettingOfALossyRunCounts) {
  const std::string low = WriteLow("q4_0");
  const std::string other = WriteLow("q5_K");
  const std::vector<std::string> drops = Joined(kBase, {"--drop-below", "0.2"});
  const auto with = [&](const std::vector<std::string>& flag) {
    ExpectRefused(drops, flag, flag.front());
  };
  with({"--prefer-resident", "0.1"});
  with({"--keep", "2"});
  with({"--rescale"});
  with({"--lossy-mode", "opportunistic"});
  with({"--policy", "lru"});
  const std::string norms = WriteSomeNorms("a.norms", 1.0F);
  const std::vector<std::string> by_norm =
      Joined(drops, {"--importance", "score-norm", "--norms", norms});
  ExpectRefused(drops, {"--importance", "score-norm", "--norms", norms}, "--importance");
  const auto changed = [&](std::vector<std::string> base, size_t at, const char* value,
                           std::string_view name) {
    const std::string saved = Save(base, "a");
    base[at] = value;
    const auto refused = Open(base)->RestoreSequence(saved);
    ASSERT_FALSE(refused) << name;
    EXPECT_TRUE(refused.error().message.contains(name)) << refused.error().message;
  };
  changed(drops, drops.size() - 1, "0.3", "--drop-below");
  changed(drops, kBase.size() - 1, "50%", "slots");
  changed(by_norm, by_norm.size() - 1, WriteSomeNorms("b.norms", 2.0F).c_str(), "--norms");
  const std::vector<std::string> lows =
      Joined(kBase, {"--t1", "0.5", "--t2", "0.8", "--low-share", "0.25", "--low", low});
  changed(lows, lows.size() - 1, other.c_str(), "--low");
  changed(lows, lows.size() - 3, "0.5", "slots");
  changed(lows, lows.size() - 5, "0.9", "--t2");
  changed(lows, lows.size() - 7, "0.6", "--t1");
  ExpectRefused(lows, {"--upgrade"}, "--upgrade");
  const std::vector<std::string> little =
      Joined(kBase, {"--gamma", "0.5", "--little-misses", "drop", "--little", "2"});
  changed(little, little.size() - 1, "1", "--little");
  changed(little, little.size() - 3, "read", "--little-misses");
  changed(little, little.size() - 5, "0.6", "--gamma");
}

// What only timing could change does not count in a lossy run either: its choices are made without
// it.
TEST_F(KeptFlagsTest, TimingDoesNotCountInALossyRun) {
  const std::vector<std::string> drops = Joined(kBase, {"--drop-below", "0.2"});
  ExpectNoDifference(drops, {"--threads", "2"});
  ExpectNoDifference(drops, {"--reader", "pread"});
  ExpectNoDifference(drops, {"--io-depth", "8"});
  ExpectNoDifference(drops, {"--prefetch", "0"});
}

TEST_F(KeptFlagsTest, RopeFactorsCountByTheContext) {
  const std::string model = WriteTinyModel(folder_.path(), {.arch = "phimoe"});
  std::vector<std::string> base = kBase;
  base[5] = "100";
  const std::string saved = Save(base, "a", model);
  base[5] = "128";
  EXPECT_TRUE(Open(base, model)->RestoreSequence(saved));
  base[5] = "129";
  const auto refused = Open(base, model)->RestoreSequence(saved);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().message.contains("rope")) << refused.error().message;
}

// Kernels of another processor round otherwise: a person's file goes on, and that is said.
TEST_F(KeptFlagsTest, OtherKernelsAreTakenWithAWarning) {
  EngineOptions options = Parse(kBase).engine;
  options.own_kernels = false;
  const auto other = NativeEngine::Open(kModel, options);
  ASSERT_TRUE(other);
  if ((*other)->kv_origin()->choices == Open(kBase)->kv_origin()->choices) {
    GTEST_SKIP() << "the build has no kernels of its own for this machine";
  }
  const std::string saved = Save(kBase, "a");
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE((*other)->RestoreSequence(saved));
  EXPECT_TRUE(::testing::internal::GetCapturedStderr().contains("other kernels"));
}

}  // namespace
}  // namespace moestro
