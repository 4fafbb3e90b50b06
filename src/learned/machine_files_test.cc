// SPDX-License-Identifier: MIT
#include "learned/machine_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

// As people would write it.
constexpr const char* kByHand = R"({
  "format": "moestro latency",
  "version": 1,
  "machine": "a desk",
  "host": {"base_us": 5, "gb_per_s": 20, "row_share": 0.25, "beside": 1.5},
  "disk": {"base_us": 80, "gb_per_s": 2.5},
  "device": {"name": "Vulkan0", "launch_us": 30, "base_us": 2, "gb_per_s": null,
             "row_gb_per_s": 500},
  "copy": {"base_us": 0, "gb_per_s": 12.5},
  "dense": {"base_us": 10, "gb_per_s": 400},
  "sources": {"copy.gb_per_s": "measured", "host": "guess"}
})";

class LatencyFileTest : public ::testing::Test {
 protected:
  LatencyFileTest()
      : folder_(fs::temp_directory_path() /
                Format("moestro_latency_{}_{}", getpid(),
                       ::testing::UnitTest::GetInstance()->current_test_info()->name())),
        path_(folder_ / "desk.json") {
    fs::create_directories(folder_);
  }
  ~LatencyFileTest() override { fs::remove_all(folder_); }

  void Put(const std::string& bytes) const { WriteAll(path_, bytes); }
  // The hand-written file with one text in it replaced is refused: the message names the file and
  // contains `part`.
  void ExpectRefusedWith(const std::string& old_text, const std::string& new_text,
                         const std::string& part, Errc code = Errc::kInvalidFile) const {
    std::string bytes = kByHand;
    const size_t at = bytes.find(old_text);
    ASSERT_NE(at, std::string::npos) << old_text;
    Put(bytes.replace(at, old_text.size(), new_text));
    ExpectRefused(part, code);
  }
  void ExpectRefused(const std::string& part, Errc code = Errc::kInvalidFile) const {
    const auto file = ReadLatency(path_);
    ASSERT_FALSE(file) << part;
    EXPECT_EQ(file.error().code, code) << part;
    EXPECT_NE(file.error().message.find(path_), std::string::npos) << file.error().message;
    EXPECT_NE(file.error().message.find(part), std::string::npos) << file.error().message;
  }

  fs::path folder_;
  std::string path_;
};

TEST_F(LatencyFileTest, UnitsAreWhatTheySay) {
  Put(kByHand);
  const auto file = ReadLatency(path_);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->machine, "a desk");
  ASSERT_EQ(file->devices, std::vector<std::string>{"Vulkan0"});
  const LatencyModel& m = file->model;
  // 20 MB for 5 rows on the CPU: 5 us, 1 ms for the first row, a quarter of it for each other.
  EXPECT_DOUBLE_EQ(m.host.Seconds(20'000'000, 5), 5e-6 + 1e-3 + 4 * 0.25e-3);
  const DeviceCosts& device = m.devices.at(0);
  EXPECT_DOUBLE_EQ(device.compute.Seconds(500'000, 3), 2e-6 + 2 * 1e-6);
  EXPECT_DOUBLE_EQ(device.copy.Seconds(12'500'000), 1e-3);
  EXPECT_DOUBLE_EQ(m.disk.Seconds(2'500'000), 80e-6 + 1e-3);
  EXPECT_DOUBLE_EQ(device.launch, 30e-6);
  EXPECT_DOUBLE_EQ(m.host_beside, 1.5);
  EXPECT_DOUBLE_EQ(device.copy_beside, 1.0);
  EXPECT_DOUBLE_EQ(file->dense.Seconds(400'000, 9), 11e-6);
  ASSERT_EQ(file->sources.size(), 2U);
  EXPECT_EQ(file->sources[0], (std::pair<std::string, std::string>{"copy.gb_per_s", "measured"}));
}

// Values of a fit have more digits than the file: those of the file stay what they are.
TEST_F(LatencyFileTest, WhatHasBeenThroughAFileStaysAsItIs) {
  LatencyFile measured{
      .machine = "this one",
      .devices = {"CUDA0"},
      .model = {.host = {.base = 1e-6 / 3.0, .per_byte = 1e-9 / 7.0, .per_row = 1e-10 / 9.0},
                .disk = {.base = 8e-5 / 7.0, .per_byte = 1e-9 / 2.3},
                .host_beside = 10.0 / 9.0,
                .border = 1e-5 / 7.0,
                .border_pair = 1e-7 / 7.0,
                .devices = {{.compute = {.per_row = 3.0e-13 / 7.0, .error = 1 / 7.0},
                             .copy = {.base = 1e-5 / 3.0, .per_byte = 1e-9 / 13.0},
                             .launch = 2e-5 / 3.0,
                             .pair = 1e-6 / 3.0,
                             .calls = 1e-5 / 3.0}}},
      .dense = {.base = 1e-6 / 7.0, .per_byte = 1e-9 / 321.0},
      .sources = {{"host", "measured"}}};
  ASSERT_TRUE(WriteLatency(path_, measured));
  const auto first = ReadLatency(path_);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_NEAR(first->model.border / measured.model.border, 1.0, 1e-5);
  EXPECT_NEAR(first->model.border_pair / measured.model.border_pair, 1.0, 1e-5);
  EXPECT_NEAR(first->model.devices.at(0).pair / (1e-6 / 3.0), 1.0, 1e-5);
  EXPECT_NEAR(first->model.devices.at(0).calls / (1e-5 / 3.0), 1.0, 1e-5);
  EXPECT_NEAR(first->model.host.per_byte / measured.model.host.per_byte, 1.0, 1e-5);
  EXPECT_NEAR(first->model.devices.at(0).compute.per_row / (3.0e-13 / 7.0), 1.0, 1e-5);
  ASSERT_TRUE(WriteLatency(path_, *first));
  const auto second = ReadLatency(path_);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(second->model, first->model);
  EXPECT_EQ(second->dense, first->dense);
  EXPECT_EQ(second->sources, first->sources);
  EXPECT_EQ(second->machine, "this one");
  EXPECT_EQ(second->devices, measured.devices);
}

TEST_F(LatencyFileTest, AMachineNeedsNoDevice) {
  LatencyFile plain{.machine = "plain"};
  plain.model.host.per_byte = 5e-11;
  ASSERT_TRUE(WriteLatency(path_, plain));
  const auto file = ReadLatency(path_);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->devices.empty());
  EXPECT_EQ(file->model.host, (Cost{.per_byte = 5e-11}));
  EXPECT_TRUE(file->model.devices.empty());
  EXPECT_FALSE(CostsOf(*file, "Vulkan0", true));
}

TEST_F(LatencyFileTest, WhatIsNoCostIsNotWritten) {
  for (const double bad :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    LatencyFile file{.machine = "m", .devices = {"d"}, .model = {.devices = {{}}}};
    file.model.devices[0].copy.per_byte = bad;
    const Status status = WriteLatency(path_, file);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Errc::kInvalidRequest);
    EXPECT_NE(status.error().message.find("copy"), std::string::npos);
  }
  EXPECT_FALSE(WriteLatency(folder_ / "none" / "x.json", {.machine = "m"}));
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(LatencyFileTest, WhatIsWrongIsNamed) {
  ExpectRefused("No such file", Errc::kIo);
  ExpectRefusedWith("moestro latency", "moestro policy", "'format'");
  ExpectRefusedWith("\"version\": 1", "\"version\": 2", "format 2 is newer", Errc::kUnsupported);
  ExpectRefusedWith("\"machine\": \"a desk\",", "", "'machine'");
  ExpectRefusedWith("\"host\"", "\"hots\"", "'hots', which nobody knows");
  ExpectRefusedWith("\"base_us\": 80, ", "", "'disk' has no number 'base_us'");
  ExpectRefusedWith("\"gb_per_s\": 2.5", "\"error\": 0", "'disk' has no 'gb_per_s'");
  ExpectRefusedWith("2.5", "-2.5", "'gb_per_s' is -2.5");
  ExpectRefusedWith("2.5", "0", "'gb_per_s' is 0");
  ExpectRefusedWith("2.5", "\"fast\"", "no number 'gb_per_s'");
  ExpectRefusedWith("2.5", "1e999", "");  // JSON's own: not a double
  ExpectRefusedWith("2.5", "NaN", "");
  ExpectRefusedWith("80", "-80", "'base_us' is -80");
  ExpectRefusedWith("1.5", "0.5", "'beside' is 0.5, not from 1");
  ExpectRefusedWith("row_share", "row_shar", "'row_shar', which nobody knows");
  ExpectRefusedWith("0.25", "0.25, \"row_gb_per_s\": 3", "one is enough");
  ExpectRefusedWith("row_gb_per_s\": 500", "row_share\": 5", "of no 'gb_per_s'");
  ExpectRefusedWith("\"launch_us\": 30,", "", "'launch_us'");
  ExpectRefusedWith("\"Vulkan0\"", "\"\"", "'name'");
  ExpectRefusedWith("\"measured\"", "7", "source of 'copy.gb_per_s'");
  ExpectRefusedWith("\"host\": {", "\"host\": 3, \"x\": {", "which nobody knows");
  Put("gb_per_s = 3\n");
  ExpectRefused("");
  Put("[]");
  ExpectRefused("'format'");
}

// A device without the copies to it, and the other way round.
TEST_F(LatencyFileTest, DeviceAndCopyBelongTogether) {
  ExpectRefusedWith("\"copy\": {\"base_us\": 0, \"gb_per_s\": 12.5},", "", "no 'copy'");
  const std::string text = kByHand;
  const size_t begin = text.find("\"device\"");
  Put(text.substr(0, begin) + text.substr(text.find("\"copy\":")));
  ExpectRefused("no 'device'");
}

// Several devices are lists.
TEST_F(LatencyFileTest, DevicesInTheirOrder) {
  const LatencyFile two{.machine = "two",
                        .devices = {"CUDA0", "CUDA1"},
                        .model = {.devices = {{.compute = {.per_byte = 1e-12}, .launch = 3e-5},
                                              {.copy = {.per_byte = 1e-10}, .copy_beside = 1.5}}}};
  ASSERT_TRUE(WriteLatency(path_, two));
  const auto file = ReadLatency(path_);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->devices, two.devices);
  ASSERT_EQ(file->model.devices.size(), 2U);
  EXPECT_NEAR(file->model.devices[0].launch, 3e-5, 1e-10);
  EXPECT_NEAR(file->model.devices[1].copy.per_byte, 1e-10, 1e-15);
  EXPECT_DOUBLE_EQ(file->model.devices[1].copy_beside, 1.5);
  EXPECT_EQ(CostsOf(*file, "CUDA1", false)->devices, std::vector{file->model.devices[1]});
  ASSERT_TRUE(WriteLatency(path_, *file));
  EXPECT_EQ(ReadLatency(path_)->model, file->model);
  const auto none = CostsOf(*file, "CUDA2", true);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("CUDA2"), std::string::npos);
}

TEST_F(LatencyFileTest, OneDeviceMayHaveAnotherNameWhereItIsTheOnlyOne) {
  Put(kByHand);
  const auto file = ReadLatency(path_);
  ASSERT_TRUE(file);
  EXPECT_EQ(CostsOf(*file, "CUDA0", true)->devices, file->model.devices);
  EXPECT_FALSE(CostsOf(*file, "CUDA0", false));
}

TEST_F(LatencyFileTest, ListsOfDevicesAndCopiesAreAsLong) {
  const std::string device = R"({"name": "a", "launch_us": 1, "base_us": 2, "gb_per_s": 3})";
  const std::string copy = R"({"base_us": 1, "gb_per_s": 2})";
  const auto put = [&](const std::string& devices, const std::string& copies) {
    std::string bytes = kByHand;
    const size_t begin = bytes.find("\"device\"");
    const size_t end = bytes.find("\"dense\"");
    Put(bytes.replace(begin, end - begin,
                      "\"device\": " + devices + ", \"copy\": " + copies + ", "));
  };
  put("[" + device + "]", "[" + copy + "]");
  EXPECT_TRUE(ReadLatency(path_));
  put("[" + device + "]", copy);
  ExpectRefused("not as many");
  put("[" + device + "]", "[" + copy + ", " + copy + "]");
  ExpectRefused("not as many");
  put("[" + device + ", " + device + "]", "[" + copy + ", " + copy + "]");
  ExpectRefused("two devices have the name 'a'");
  put("[]", "[]");
  ExpectRefused("'device'");
  put("[" + device + ", 3]", "[" + copy + ", " + copy + "]");
  ExpectRefused("'device 2'");
}

TEST_F(LatencyFileTest, EveryCutIsNoticed) {
  const std::string whole = kByHand;
  for (size_t length = 0; length < whole.size(); ++length) {
    Put(whole.substr(0, length));
    EXPECT_FALSE(ReadLatency(path_)) << length;
  }
}

MachineRates Some() {
  return {.cpu = "a processor, 2 threads",
          .threads = 2,
          .memory = uint64_t{16} << 30,
          .page = 16384,
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

TEST_F(RatesFile, AMachineMayNotSayItsPage) {
  EXPECT_EQ(ErrorWith("\"page_bytes\": 16384,", ""), "");
  EXPECT_EQ(ReadRates(Path())->page, 0U);
  MachineRates rates = Some();
  rates.page = 0;
  ASSERT_TRUE(WriteRates(Path(), rates));
  EXPECT_EQ(*ReadRates(Path()), rates);
}

TEST_F(RatesFile, DevicesComeBackBesideTheRates) {
  const LatencyFile gpu{.devices = {"Card0"},
                        .model = {.border = 2e-5,
                                  .devices = {{.compute = {.base = 5e-6, .per_byte = 1e-12},
                                               .copy = {.base = 1e-5, .per_byte = 1e-10},
                                               .launch = 1e-5}}},
                        .is_remote = {false},
                        .memory = {uint64_t{8} << 30}};
  ASSERT_TRUE(WriteMachine(Path(), Some(), gpu));
  EXPECT_EQ(*ReadRates(Path()), Some());
  const auto devices = ReadDevices(Path());
  ASSERT_TRUE(devices) << devices.error().message;
  EXPECT_EQ(devices->devices, gpu.devices);
  EXPECT_EQ(devices->memory, gpu.memory);
  EXPECT_NEAR(devices->model.border, gpu.model.border, 1e-12);
  ASSERT_EQ(devices->model.devices.size(), 1U);
  EXPECT_NEAR(devices->model.devices.front().launch, 1e-5, 1e-12);
  EXPECT_NEAR(devices->model.devices.front().copy.per_byte, 1e-10, 1e-17);

  ASSERT_TRUE(WriteRates(Path(), Some()));
  EXPECT_TRUE(ReadDevices(Path())->devices.empty());
  Write(R"({"format": "moestro machine", "version": 1, "device": {"name": "a"}})");
  const auto half = ReadDevices(Path());
  ASSERT_FALSE(half);
  EXPECT_TRUE(half.error().message.contains("no 'copy'")) << half.error().message;
}

TEST_F(RatesFile, WhatIsWrongIsNamed) {
  EXPECT_NE(ErrorWith("\"threads\": 2", "\"threads\": 0").find("threads"), std::string::npos);
  EXPECT_NE(ErrorWith("\"disk_gb_per_s\": 2", "\"disk_gb_per_s\": -2").find("disk_gb_per_s"),
            std::string::npos);
  EXPECT_NE(ErrorWith("q4_K", "f32").find("twice"), std::string::npos);
  for (const char* page : {"12288", "4096.5", "1", "1e9", "-4096", "\"16K\""}) {
    EXPECT_NE(ErrorWith("\"page_bytes\": 16384", std::string("\"page_bytes\": ") + page)
                  .find("page_bytes"),
              std::string::npos)
        << page;
  }
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

TEST_F(RatesFile, TheFirstStartUsesWhatLaterOnesRead) {
  const std::string folder = folder_.path() / "kept";
  MachineRates measured = Some();
  const RatesKey key{.cpu = measured.cpu, .disk = 1};
  // Some of the rates have a last bit that the file's unit rounds.
  uint32_t rounded = 0;
  for (int i = 0; i < 200; ++i) {
    measured.disk = 1e9 + 123456789.1 * i;
    const MachineRates used = KeepRates(folder, key, measured);
    EXPECT_EQ(used, *KeptRates(folder, key)) << i;
    EXPECT_EQ(used, KeepRates("", key, measured)) << i;
    rounded += used.disk != measured.disk ? 1 : 0;
  }
  EXPECT_GT(rounded, 0U);
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
