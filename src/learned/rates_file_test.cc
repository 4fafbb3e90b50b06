// SPDX-License-Identifier: MIT
#include "learned/rates_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

MachineRates Some() {
  return {.cpu = "a processor, 2 threads",
          .threads = 2,
          .memory = uint64_t{16} << 30,
          .disk = 2e9,
          .io_depth = 8,
          .barrier = 4e-6,
          .kernels = {{.type = "q4_K", .decode = 21e9, .prompt = 90e9},
                      {.type = "f32", .decode = 30e9, .prompt = 20e9}}};
}

class RatesFile : public testing::Test {
 protected:
  std::string Path() const { return folder_.path() / "machine.json"; }
  void Write(const std::string& text) const { std::ofstream(Path()) << text; }
  // Of a file in which `from` is `to`.
  std::string ErrorWith(const std::string& from, const std::string& to) const {
    EXPECT_TRUE(WriteRates(Path(), Some()));
    std::ifstream in(Path());
    std::string text((std::istreambuf_iterator<char>(in)), {});
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << text;
    if (at == std::string::npos) return {};
    Write(text.replace(at, from.size(), to));
    const auto rates = ReadRates(Path());
    return rates ? "" : rates.error().message;
  }

  TempFolder folder_;
};

TEST_F(RatesFile, ComesBackAsItWas) {
  ASSERT_TRUE(WriteRates(Path(), Some()));
  const auto rates = ReadRates(Path());
  ASSERT_TRUE(rates) << rates.error().message;
  EXPECT_EQ(*rates, Some());
}

TEST_F(RatesFile, WhatIsWrongIsNamed) {
  EXPECT_NE(ErrorWith("\"threads\": 2", "\"threads\": 0").find("threads"), std::string::npos);
  EXPECT_NE(ErrorWith("\"disk_gb_per_s\": 2", "\"disk_gb_per_s\": -2").find("disk_gb_per_s"),
            std::string::npos);
  EXPECT_NE(ErrorWith("q4_K", "f32").find("twice"), std::string::npos);
  EXPECT_NE(ErrorWith("\"kernels\": [", "\"kernels\": 3, \"others\": [").find("kernels"),
            std::string::npos);
  EXPECT_NE(ErrorWith("moestro machine", "moestro latency").find("moestro machine"),
            std::string::npos);
}

TEST_F(RatesFile, KeptForOneProcessorAndDisk) {
  const std::string folder = folder_.path() / "kept";
  const RatesKey key{.cpu = Some().cpu, .disk = 0x801};
  EXPECT_FALSE(KeptRates(folder, key));
  KeepRates(folder, key, Some());
  ASSERT_TRUE(KeptRates(folder, key));
  EXPECT_EQ(*KeptRates(folder, key), Some());
  EXPECT_FALSE(KeptRates(folder, {.cpu = key.cpu, .disk = 0x802}));
  EXPECT_FALSE(KeptRates(folder, {.cpu = "another one", .disk = 0x801}));
  EXPECT_FALSE(KeptRates("", key));
}

TEST_F(RatesFile, ADamagedKeptFileIsMeasuredAgain) {
  const std::string folder = folder_.path() / "kept";
  const RatesKey key{.cpu = Some().cpu, .disk = 1};
  KeepRates(folder, key, Some());
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ofstream(entry.path()) << "{";
  }
  EXPECT_FALSE(KeptRates(folder, key));
}

}  // namespace
}  // namespace moestro
