// SPDX-License-Identifier: MIT
#include "learned/tuning_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/format.h"
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

}  // namespace
}  // namespace moestro
