// SPDX-License-Identifier: MIT
#include "learned/sweep_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

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
