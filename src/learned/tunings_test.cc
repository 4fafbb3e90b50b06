// SPDX-License-Identifier: MIT
#include "learned/tunings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "base/text.h"
#include "learned/beside_model.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

class TuningFileTest : public ::testing::Test {
 protected:
  TuningFileTest()
      : folder_(fs::temp_directory_path() /
                Format("moestro_tuning_{}_{}", getpid(),
                       ::testing::UnitTest::GetInstance()->current_test_info()->name())),
        path_(folder_ / "m.gguf.policy.json") {
    fs::create_directories(folder_);
  }
  ~TuningFileTest() override { fs::remove_all(folder_); }

  std::string Bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Put(const std::string& bytes) const { WriteAll(path_, bytes); }
  // Reading fails with a message that names the file and contains `part`.
  void ExpectRefused(const std::string& part, Errc code = Errc::kInvalidFile) const {
    const auto tuning = ReadTuning(path_);
    ASSERT_FALSE(tuning) << part;
    EXPECT_EQ(tuning.error().code, code) << part;
    EXPECT_NE(tuning.error().message.find(path_), std::string::npos) << tuning.error().message;
    EXPECT_NE(tuning.error().message.find(part), std::string::npos) << tuning.error().message;
  }
  // The same with one text in a good file replaced.
  void ExpectRefusedWith(const std::string& old_text, const std::string& new_text,
                         const std::string& part, Errc code = Errc::kInvalidFile) const {
    ASSERT_TRUE(WriteTuning(path_, Tuning()));
    std::string bytes = Bytes();
    const size_t at = bytes.find(old_text);
    ASSERT_NE(at, std::string::npos) << old_text;
    Put(bytes.replace(at, old_text.size(), new_text));
    ExpectRefused(part, code);
  }
  static PolicyTuning Tuning() {
    return {.model = {.name = "m.gguf",
                      .fingerprint = 0xfedcba9876543210,
                      .shape = {.n_layer = 6, .n_expert = 16, .n_used = 4}},
            .sizes = {{.slots = 24,
                       .choice = {.name = "hobbit", .parameters = {{"w_lru", 0.1}, {"w_fld", 0.9}}},
                       .hit_rate = 1.0 / 3.0,
                       .standard_hit_rate = 0.25},
                      {.slots = 48, .choice = {.name = "lru"}}}};
  }

  fs::path folder_;
  std::string path_;
};

TEST_F(TuningFileTest, ComesBackAsItWas) {
  const PolicyTuning tuning = Tuning();
  ASSERT_TRUE(WriteTuning(path_, tuning));
  const auto read = ReadTuning(path_);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->model, tuning.model);
  ASSERT_EQ(read->sizes.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read->sizes[i].slots, tuning.sizes[i].slots);
    EXPECT_EQ(read->sizes[i].choice.name, tuning.sizes[i].choice.name);
    EXPECT_EQ(read->sizes[i].choice.parameters, tuning.sizes[i].choice.parameters);
    EXPECT_EQ(read->sizes[i].hit_rate, tuning.sizes[i].hit_rate);
    EXPECT_EQ(read->sizes[i].standard_hit_rate, tuning.sizes[i].standard_hit_rate);
  }
}

TEST_F(TuningFileTest, EveryCutIsNoticed) {
  ASSERT_TRUE(WriteTuning(path_, Tuning()));
  const std::string whole = Bytes();
  for (size_t length = 0; length + 2 < whole.size(); ++length) {  // the last two: "}\n"
    Put(whole.substr(0, length));
    EXPECT_FALSE(ReadTuning(path_)) << length;
  }
}

TEST_F(TuningFileTest, WhatIsWrongIsNamed) {
  ExpectRefused("No such file", Errc::kIo);
  ExpectRefusedWith("moestro policy", "moestro polity", "'format'");
  ExpectRefusedWith("\"version\": 1", "\"version\": 2", "format 2 is newer", Errc::kUnsupported);
  ExpectRefusedWith("\"version\": 1", "\"version\": 0.5", "version");
  ExpectRefusedWith("hobbit", "hobbyt", "unknown policy 'hobbyt'");
  ExpectRefusedWith("w_lru", "w_old", "w_old");
  ExpectRefusedWith("0.9", "9", "w_fld");
  ExpectRefusedWith("0.9", "\"much\"", "w_fld");
  ExpectRefusedWith("\"slots\": 24", "\"slots\": 0", "'slots'");
  ExpectRefusedWith("\"slots\": 24", "\"slots\": 2.5", "2.5");
  ExpectRefusedWith("\"layers\": 6", "\"layers\": -6", "'layers'");
  ExpectRefusedWith("\"used\": 4", "\"used\": 17", "'used'");
  ExpectRefusedWith("fedcba", "gedcba", "fingerprint");
  ExpectRefusedWith("\"sizes\"", "\"size\"", "'sizes'");
  Put(std::string(2 << 20, ' '));
  ExpectRefused("more than");
  fs::remove(path_);
  fs::create_directory(path_);
  ExpectRefused("not a file", Errc::kIo);
}

TEST_F(TuningFileTest, AFolderThatIsNotThereIsNamed) {
  const auto written = WriteTuning(folder_ / "none" / "x.json", Tuning());
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find("none"), std::string::npos);
}

// 1 MB of brackets beside a model ended every command by a stack overflow.
TEST_F(TuningFileTest, BracketsAreRefusedHoweverMany) {
  const std::string open((size_t{1} << 19) - 100, '[');
  const std::string close(open.size(), ']');
  for (const std::string& text :
       {open + open, open + close, R"({"format":)" + open + close + "}"}) {
    Put(text);
    ExpectRefused("nested deeper than 64");
  }
}

namespace fs = std::filesystem;

const ModelId kPolicyModel = {
    .name = "m.gguf", .fingerprint = 5, .shape = {.n_layer = 2, .n_expert = 8, .n_used = 2}};

struct Asked {
  std::optional<PolicyChoice> policy = {};
  std::string file = {};
};

class PolicySourceTest : public ::testing::Test {
 protected:
  PolicySourceTest()
      : folder_(fs::temp_directory_path() /
                Format("moestro_source_{}_{}", getpid(),
                       ::testing::UnitTest::GetInstance()->current_test_info()->name())),
        model_(folder_ / "m.gguf") {
    fs::create_directories(folder_);
  }
  ~PolicySourceTest() override { fs::remove_all(folder_); }

  void Put(const std::string& path, const std::string& policy, const ModelId& model) const {
    ASSERT_TRUE(
        WriteTuning(path, {.model = model, .sizes = {{.slots = 4, .choice = {.name = policy}}}}));
  }
  Result<PolicyChoice> Choose(const Asked& options) const {
    TRY(const PolicySource source, PolicySource::Find(options.policy, options.file, model_));
    return source.Choose(kPolicyModel, 4);
  }
  std::string Chosen(const Asked& options) const {
    const auto choice = Choose(options);
    return choice ? choice->name : choice.error().message;
  }

  fs::path folder_;
  std::string model_;
};

TEST_F(PolicySourceTest, TheMoreExplicitOneWins) {
  Asked options;
  EXPECT_EQ(Chosen(options), PolicyChoice{}.name);
  Put(TuningBeside(model_), "fld", kPolicyModel);
  EXPECT_EQ(Chosen(options), "fld");
  options.file = folder_ / "other.json";
  Put(options.file, "lfru", kPolicyModel);
  EXPECT_EQ(Chosen(options), "lfru");
  options.policy = PolicyChoice{.name = "lru"};
  EXPECT_EQ(Chosen(options), "lru");
}

TEST_F(PolicySourceTest, ABadTuningIsNamedWithTheRemedy) {
  ModelId foreign = kPolicyModel;
  foreign.fingerprint = 6;
  const std::string beside = TuningBeside(model_);
  Put(beside, "fld", foreign);
  for (const char* part : {"m.gguf.policy.json", "fingerprint", "--policy", "delete it"}) {
    EXPECT_NE(Chosen({}).find(part), std::string::npos) << Chosen({});
  }
  std::ofstream(beside) << "{";
  EXPECT_NE(Chosen({}).find("delete it"), std::string::npos) << Chosen({});
  // A request that names a policy does not read the file.
  Asked named;
  named.policy = PolicyChoice{.name = "lru"};
  EXPECT_EQ(Chosen(named), "lru");
  named.policy.reset();
  named.file = folder_ / "none.json";
  EXPECT_NE(Chosen(named).find("none.json"), std::string::npos) << Chosen(named);
  EXPECT_NE(Chosen(named).find("--policy-file"), std::string::npos) << Chosen(named);
}

class SweepFileTest : public ::testing::Test {
 protected:
  SweepFileTest() : path_(folder_.File("m.gguf.sweep.json")) {}

  std::string Bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Put(const std::string& bytes) const { WriteAll(path_, bytes); }
  // One text in a good file replaced: reading names the file and `part`.
  void ExpectRefusedWith(const std::string& old_text, const std::string& new_text,
                         const std::string& part, Errc code = Errc::kInvalidFile) const {
    ASSERT_TRUE(WriteSweep(path_, Sweep()));
    std::string bytes = Bytes();
    const size_t at = bytes.find(old_text);
    ASSERT_NE(at, std::string::npos) << old_text;
    Put(bytes.replace(at, old_text.size(), new_text));
    const auto sweep = ReadSweep(path_);
    ASSERT_FALSE(sweep) << part;
    EXPECT_EQ(sweep.error().code, code) << part;
    EXPECT_NE(sweep.error().message.find(path_), std::string::npos) << sweep.error().message;
    EXPECT_NE(sweep.error().message.find(part), std::string::npos) << sweep.error().message;
  }
  static StoredSweep Sweep() {
    return {.model = {.name = "m.gguf",
                      .fingerprint = 0xfedcba9876543210,
                      .shape = {.n_layer = 6, .n_expert = 16, .n_used = 4}},
            .ram_bytes = 6ULL << 30,
            .expert_bytes = 4ULL << 30,
            .settings = {{.knobs = {},
                          .is_exact = true,
                          .kl_se = 0.0,
                          .decode_tps = 10.25,
                          .bytes_per_token = 1e6,
                          .perplexity = 7.5,
                          .slots = 48},
                         {.knobs = {{.knob = "low", .value = "/a \"b\"/l.gguf"},
                                    {.knob = "t1", .value = "0.6"}},
                          .kl_mean = 1.0 / 300.0,
                          .kl_se = std::nullopt,
                          .decode_tps = 20.5,
                          .bytes_per_token = 5e5,
                          .perplexity = 7.75,
                          .slots = 36,
                          .low_slots = 24}}};
  }

  TempFolder folder_;
  std::string path_;
};

TEST_F(SweepFileTest, ComesBackAsItWas) {
  const StoredSweep sweep = Sweep();
  ASSERT_TRUE(WriteSweep(path_, sweep));
  const auto read = ReadSweepFor(sweep.model, path_);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->model, sweep.model);
  EXPECT_EQ(read->ram_bytes, sweep.ram_bytes);
  EXPECT_EQ(read->expert_bytes, sweep.expert_bytes);
  ASSERT_EQ(read->settings.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    const MeasuredSetting& a = read->settings[i];
    const MeasuredSetting& b = sweep.settings[i];
    EXPECT_EQ(a.knobs, b.knobs);
    EXPECT_EQ(a.is_exact, b.is_exact);
    EXPECT_EQ(a.kl_mean, b.kl_mean);
    EXPECT_EQ(a.kl_se, b.kl_se);
    EXPECT_EQ(a.decode_tps, b.decode_tps);
    EXPECT_EQ(a.bytes_per_token, b.bytes_per_token);
    EXPECT_EQ(a.perplexity, b.perplexity);
    EXPECT_EQ(a.slots, b.slots);
    EXPECT_EQ(a.low_slots, b.low_slots);
  }
}

TEST_F(SweepFileTest, EveryCutIsNoticed) {
  ASSERT_TRUE(WriteSweep(path_, Sweep()));
  const std::string whole = Bytes();
  for (size_t length = 0; length + 2 < whole.size(); ++length) {  // the last two: "}\n"
    Put(whole.substr(0, length));
    EXPECT_FALSE(ReadSweep(path_)) << length;
  }
}

TEST_F(SweepFileTest, WhatIsWrongIsNamed) {
  const auto absent = ReadSweep(path_);
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, Errc::kIo);
  ExpectRefusedWith("moestro sweep", "moestro policy", "'format'");
  ExpectRefusedWith("\"version\": 1", "\"version\": 2", "format 2 is newer", Errc::kUnsupported);
  ExpectRefusedWith("\"budget\"", "\"gadget\"", "'budget'");
  ExpectRefusedWith("\"expert_bytes\": 4", "\"expert_bytes\": -4", "'expert_bytes'");
  ExpectRefusedWith("\"settings\"", "\"setting\"", "'settings'");
  ExpectRefusedWith("\"t1\"", "\"ram\"", "setting 1 sets 'ram'");
  ExpectRefusedWith("\"t1\"", "\"cache\"", "one budget");
  ExpectRefusedWith("\"0.6\"", "0.6", "'t1'");
  ExpectRefusedWith("\"exact\": 1", "\"exact\": 2", "'exact'");
  ExpectRefusedWith("\"kl_mean\": 0.00", "\"kl_mean\": -0.00", "'kl_mean'");
  ExpectRefusedWith("\"decode_tps\": 20.5", "\"decode_tps\": \"fast\"", "'decode_tps'");
  ExpectRefusedWith("\"perplexity\": 7.75", "\"perplexity\": 0.5", "'perplexity'");
  ExpectRefusedWith("\"slots\": 36", "\"slots\": 0", "'slots'");
  ExpectRefusedWith("\"low_slots\": 24", "\"low_slots\": 2.5", "2.5");
  ExpectRefusedWith("\"used\": 4", "\"used\": 17", "'used'");
}

TEST_F(SweepFileTest, AnotherModelIsRefused) {
  ASSERT_TRUE(WriteSweep(path_, Sweep()));
  ModelId other = Sweep().model;
  other.fingerprint = 7;
  const auto read = ReadSweepFor(other, path_);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::kInvalidRequest);
  EXPECT_NE(read.error().message.find("moestro eval"), std::string::npos) << read.error().message;
}

}  // namespace
}  // namespace moestro
