// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "learned/kept_facts.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

class KeptWeightsTest : public ::testing::Test {
 protected:
  KeptWeightsTest() {
    Write("some weights");
    Settle();
  }
  void Write(const char* bytes) const { std::ofstream(model()) << bytes; }
  // As if it had been written a while ago.
  void Settle() const {
    fs::last_write_time(model(), fs::file_time_type::clock::now() - std::chrono::hours(1));
  }
  std::string model() const { return folder_.File("model.gguf"); }
  std::string cache() const { return folder_.File("cache"); }
  WeightsKey Key() const {
    return {.what = "model", .header = 7, .files = {FileVersion::Of(model()).value()}};
  }
  std::string file() const { return KeptWeightsFile(cache(), Key()); }

  TempFolder folder_;
};

TEST_F(KeptWeightsTest, WhatIsKeptIsFound) {
  EXPECT_EQ(KeptWeights(cache(), Key()), std::nullopt);
  KeepWeights(cache(), Key(), 0x123456789abcdef0);
  EXPECT_EQ(KeptWeights(cache(), Key()), 0x123456789abcdef0U);
  KeepWeights(cache(), Key(), 5);
  EXPECT_EQ(KeptWeights(cache(), Key()), 5U);
  struct stat info{};
  ASSERT_EQ(::stat(file().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  EXPECT_EQ(std::distance(fs::directory_iterator(cache()), fs::directory_iterator()), 1);
}

TEST_F(KeptWeightsTest, AnyChangeOfTheFileForgetsIt) {
  KeepWeights(cache(), Key(), 5);
  const auto time = fs::last_write_time(model());
  fs::last_write_time(model(), time + std::chrono::nanoseconds(1));
  EXPECT_EQ(KeptWeights(cache(), Key()), std::nullopt);
  KeepWeights(cache(), Key(), 5);
  Write("other weights");
  Settle();
  EXPECT_EQ(KeptWeights(cache(), Key()), std::nullopt);
  // Written in place, with the same size and its old time.
  KeepWeights(cache(), Key(), 5);
  const auto kept_time = fs::last_write_time(model());
  Write("newer weights");
  fs::last_write_time(model(), kept_time);
  EXPECT_EQ(KeptWeights(cache(), Key()), std::nullopt);
  // Another file under its name.
  KeepWeights(cache(), Key(), 5);
  std::ofstream(folder_.File("new")) << "newer weights";
  fs::last_write_time(folder_.File("new"), kept_time);
  fs::rename(folder_.File("new"), model());
  EXPECT_EQ(KeptWeights(cache(), Key()), std::nullopt);
}

TEST_F(KeptWeightsTest, EveryPartOfTheKeyCounts) {
  KeepWeights(cache(), Key(), 5);
  WeightsKey other = Key();
  other.what = "low copies";
  EXPECT_EQ(KeptWeights(cache(), other), std::nullopt);
  other = Key();
  other.header = 8;
  EXPECT_EQ(KeptWeights(cache(), other), std::nullopt);
  other = Key();
  other.files.push_back(other.files.front());
  EXPECT_EQ(KeptWeights(cache(), other), std::nullopt);
  EXPECT_EQ(KeptWeights(cache(), Key()), 5U);
}

// The clock of a file system ticks slowly: a second change within a tick would not show.
TEST_F(KeptWeightsTest, AFileThatHasJustChangedIsNotKept) {
  Write("fresh");
  KeepWeights(cache(), Key(), 5);
  EXPECT_EQ(KeptWeights(cache(), Key()), std::nullopt);
  EXPECT_FALSE(fs::exists(cache()));
}

TEST_F(KeptWeightsTest, NothingInTheFolderIsTrusted) {
  KeepWeights(cache(), Key(), 5);
  const std::string good = ReadAll(file());
  const auto is_found = [&](const std::string& bytes) {
    WriteAll(file(), bytes);
    return KeptWeights(cache(), Key()).has_value();
  };
  ASSERT_TRUE(is_found(good));
  for (size_t n = 0; n < good.size(); ++n) EXPECT_FALSE(is_found(good.substr(0, n))) << n;
  EXPECT_FALSE(is_found(good + "\n"));
  EXPECT_FALSE(is_found(good + good));
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    EXPECT_FALSE(is_found(bad)) << i;
  }
  ASSERT_TRUE(is_found(good));
  fs::permissions(file(), fs::perms::group_write, fs::perm_options::add);
  EXPECT_EQ(KeptWeights(cache(), Key()), std::nullopt);
  fs::remove(file());
  std::ofstream(folder_.File("elsewhere")) << good;
  fs::create_symlink(folder_.File("elsewhere"), file());
  EXPECT_EQ(KeptWeights(cache(), Key()), std::nullopt);
  fs::remove(file());
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  EXPECT_EQ(KeptWeights(cache(), Key()), std::nullopt);
  fs::remove(file());
  fs::create_directory(file());
  EXPECT_EQ(KeptWeights(cache(), Key()), std::nullopt);
  KeepWeights(cache(), Key(), 5);  // cannot, and that is no error
  EXPECT_EQ(KeptWeights(cache(), Key()), std::nullopt);
}

TEST_F(KeptWeightsTest, AFolderThatCannotBeIsNoError) {
  EXPECT_EQ(KeptWeights("", Key()), std::nullopt);
  KeepWeights("", Key(), 5);
  const std::string under_a_file = model() + "/cache";
  KeepWeights(under_a_file, Key(), 5);
  EXPECT_EQ(KeptWeights(under_a_file, Key()), std::nullopt);
  KeepWeights("/proc/nowhere", Key(), 5);
  EXPECT_EQ(KeptWeights("/proc/nowhere", Key()), std::nullopt);
}

}  // namespace
}  // namespace moestro
