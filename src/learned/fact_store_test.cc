// SPDX-License-Identifier: MIT
#include "learned/fact_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <iterator>
#include <string>

#include "tests/support/file_size_limit_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

class FactStoreTest : public testing::Test {
 protected:
  std::string cache() const { return folder_.File("cache"); }
  std::string file() const { return cache() + "/" + key_.file; }
  std::optional<std::string> Kept() const { return KeptFact(cache(), key_); }
  auto CountFiles() const {
    return std::distance(fs::directory_iterator(cache()), fs::directory_iterator());
  }

  TempFolder folder_;
  const FactKey key_{.file = "speed-1", .text = "of a model\nin words"};
  const std::string value_ = std::string("bytes\0of any kind\n", 18);
};

TEST_F(FactStoreTest, AKeptValueIsFoundAndReplaced) {
  EXPECT_EQ(Kept(), std::nullopt);
  for (const std::string& value : {value_, std::string(), std::string(70000, 'x')}) {
    KeepFact(cache(), key_, value);
    EXPECT_EQ(Kept(), value);
  }
  struct stat info{};
  ASSERT_EQ(::stat(file().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  EXPECT_EQ(CountFiles(), 1);
}

TEST_F(FactStoreTest, AValueIsOfItsKeyAlone) {
  KeepFact(cache(), key_, value_);
  EXPECT_EQ(KeptFact(cache(), {.file = key_.file, .text = "of another"}), std::nullopt);
  EXPECT_EQ(KeptFact(cache(), {.file = key_.file, .text = key_.text + "\nbytes"}), std::nullopt);
  EXPECT_EQ(KeptFact(cache(), {.file = key_.file, .text = ""}), std::nullopt);
  EXPECT_EQ(Kept(), value_);
  // A foreign file under this key's name.
  const FactKey other{.file = "speed-2", .text = key_.text};
  KeepFact(cache(), other, "of the other");
  fs::rename(cache() + "/" + other.file, file());
  EXPECT_EQ(Kept(), std::nullopt);
}

TEST_F(FactStoreTest, EveryByteOfAFileCounts) {
  KeepFact(cache(), key_, value_);
  const std::string good = ReadAll(file());
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    WriteAll(file(), bad);
    EXPECT_EQ(Kept(), std::nullopt) << "byte " << i;
    WriteAll(file(), good.substr(0, i));
    EXPECT_EQ(Kept(), std::nullopt) << i << " bytes";
  }
  WriteAll(file(), good + "x");
  EXPECT_EQ(Kept(), std::nullopt);
  WriteAll(file(), good + good);
  EXPECT_EQ(Kept(), std::nullopt);
  WriteAll(file(), good);
  EXPECT_EQ(Kept(), value_);
}

TEST_F(FactStoreTest, FilesThatOthersCouldHaveMadeAreNotRead) {
  KeepFact(cache(), key_, value_);
  for (const fs::perms write : {fs::perms::others_write, fs::perms::group_write}) {
    fs::permissions(file(), write, fs::perm_options::add);
    EXPECT_EQ(Kept(), std::nullopt);
    fs::permissions(file(), write, fs::perm_options::remove);
  }
  EXPECT_EQ(Kept(), value_);
  fs::rename(file(), folder_.File("elsewhere"));
  fs::create_symlink(folder_.File("elsewhere"), file());
  EXPECT_EQ(Kept(), std::nullopt);
  fs::remove(file());
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  EXPECT_EQ(Kept(), std::nullopt);
  fs::remove(file());
  fs::create_directory(file());
  EXPECT_EQ(Kept(), std::nullopt);
  KeepFact(cache(), key_, value_);  // cannot: no more than a line in the log
  EXPECT_TRUE(fs::is_directory(file()));
  EXPECT_EQ(CountFiles(), 1);
}

TEST_F(FactStoreTest, AFullDiskLeavesTheValueBefore) {
  KeepFact(cache(), key_, value_);
  {
    const FileSizeLimit full(8);
    KeepFact(cache(), key_, "another");
  }
  EXPECT_EQ(Kept(), value_);
  EXPECT_EQ(CountFiles(), 1);
}

TEST_F(FactStoreTest, AFolderThatCannotBeIsNoError) {
  WriteAll(folder_.File("file"), "");
  for (const std::string& folder :
       {std::string(), folder_.File("file"), folder_.File("file") + "/cache",
        std::string("/proc/nowhere")}) {
    KeepFact(folder, key_, value_);
    EXPECT_EQ(KeptFact(folder, key_), std::nullopt) << folder;
  }
}

TEST_F(FactStoreTest, AHugeFileIsNotRead) {
  KeepFact(cache(), key_, value_);
  fs::resize_file(file(), uint64_t{1} << 40U);  // with a hole
  EXPECT_EQ(Kept(), std::nullopt);
}

}  // namespace
}  // namespace moestro
