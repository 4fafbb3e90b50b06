// SPDX-License-Identifier: MIT
// A device that is lost at any call of its backend, for once or for good: the run says what the CPU
// alone would, or ends with a sentence. Nothing throws, hangs or is left behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/number.h"
#include "compute/backend_buffer.h"
#include "compute/devices.h"
#include "devices/device_link.h"
#include "engine/append.h"
#include "native/native_engine.h"
#include "tests/device/device_testing.h"
#include "tests/support/fault_reader_testing.h"
#include "tests/support/product_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/throwing_backend_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

using When = LostDevice::When;

// All calls are tried with MOESTRO_TEST_EVERY_CALL; else so many, spread over all of them, beside
// the first and the last of each kind.
constexpr int64_t kSpread = 8;

// A loss is of a kind of call, the first or the last of that kind, or any call at a place in the
// run, once or for good. The cover has each kind and each place; MOESTRO_TEST_EVERY_CALL has all.
std::vector<When> LossesOfPart(uint32_t part, const std::vector<int64_t>& calls, int64_t spread) {
  struct Loss {
    When when;
    Keys keys;
  };
  std::vector<Loss> losses;
  int64_t all = 0;
  for (int kind = 0; kind < kDeviceCalls; ++kind) {
    const int64_t n = calls[static_cast<size_t>(kind)];
    all += n;
    for (const int64_t first : std::set<int64_t>{0, n - 1}) {
      if (n == 0) continue;
      losses.push_back({.when = {.first = first, .count = 1, .kind = kind},
                        .keys = {Format("kind {}", kind), first == 0 ? "first" : "last"}});
    }
  }
  const bool is_every = std::getenv("MOESTRO_TEST_EVERY_CALL") != nullptr;
  const int64_t step = is_every ? 1 : std::max<int64_t>(all / spread, 1);
  for (int64_t first = 0; first < all; first += step) {
    const std::string place = Format("place {}", first / step);
    losses.push_back({.when = {.first = first}, .keys = {place, "for good"}});
    if (is_every || first / step % 2 == 1) {
      losses.push_back({.when = {.first = first, .count = 1}, .keys = {place, "once"}});
    }
  }
  std::vector<When> chosen;
  for (const Loss& loss : CellsOfPart(part, losses, [](const Loss& one) { return one.keys; })) {
    chosen.push_back(loss.when);
  }
  return chosen;
}

class LostDeviceTest : public DeviceTest {
 protected:
  void SetUp() override {
    LostDevice::LeaveMatrixCores();
    DeviceTest::SetUp();
  }
  // Every row takes all experts of a layer: no tie between two can fall the other way there.
  static TinySpec AllOf(const std::string& arch) {
    return {.arch = arch, .type = "Q8_0", .layers = 3, .experts = 4, .used = 4, .ff = 256};
  }
  EngineOptions Auto(EngineOptions options) const {
    options.device.name = "auto";
    options.device.auto_takes_software = true;
    return options;
  }
  // The dense part there, too.
  EngineOptions Whole(const TinySpec& spec) {
    EngineOptions options = OnDevice(spec, PlaceMode::kGpuCentric);
    options.device.dense_on_cpu = false;
    options.device.vram = {256 * kMiB};
    return options;
  }
  // A start, two sequences, and the end.
  static Run Short(const std::string& model, const EngineOptions& options) {
    return Decode(model, options, 2, 3);
  }
  // How many calls a run makes, by kind.
  static std::vector<int64_t> CallsOf(const std::string& model, const EngineOptions& options) {
    const LostDevice never({});
    const Run run = Short(model, options);
    EXPECT_TRUE(run.status) << run.status.error().message;
    return LostDevice::calls();
  }
  // Calls of a kind since the last LostDevice; -1: of all.
  static int64_t MadeOf(int kind) {
    const std::vector<int64_t> made = LostDevice::calls();
    return kind < 0 ? std::accumulate(made.begin(), made.end(), int64_t{0})
                    : made[static_cast<size_t>(kind)];
  }
};

// Goes through losses of a part.
class LostAtCalls : public LostDeviceTest, public testing::WithParamInterface<uint32_t> {
 protected:
  void LoseAt(const std::string& model, const EngineOptions& options, const Run& cpu,
              const std::string& what, int64_t spread = kSpread) {
    const bool may_end = options.device.name != "auto";
    const std::vector<int64_t> calls = CallsOf(model, options);
    const std::vector<When> losses = LossesOfPart(GetParam(), calls, spread);
    const bool is_cover = GetParam() == 0;  // whose losses are of all kinds
    size_t ended = 0;
    size_t missed = 0;  // the run made fewer calls than the one before: who is copied is timing's
    for (const When& when : losses) {
      const std::string where = what + ", call " + std::to_string(when.first) + " of kind " +
                                std::to_string(when.kind) +
                                (when.count == 1 ? ", once" : ", for good");
      const LostDevice lost(when);
      const Run run = Short(model, options);
      if (LostDevice::thrown() == 0) {
        EXPECT_LE(MadeOf(when.kind), when.first) << where;
        ++missed;
      }
      if (run.status) {
        ExpectNear(run, cpu, kEightBits, where);
        continue;
      }
      ++ended;
      EXPECT_TRUE(may_end) << where << ": " << run.status.error().message;
      EXPECT_EQ(run.status.error().code, Errc::kDevice)
          << where << ": " << run.status.error().message;
      EXPECT_FALSE(run.status.error().message.empty()) << where;
    }
    EXPECT_TRUE(may_end || ended == 0) << what;
    EXPECT_TRUE(!may_end || !is_cover || ended > 0) << what;
    EXPECT_LE(missed, std::max<size_t>(losses.size() / 8, 1)) << what;
  }
};

// Which calls there are shows when a run is counted, so a test gets the number of its part.
std::vector<uint32_t> NumberOfPart(uint32_t part) { return {part}; }

MOESTRO_INSTANTIATE_PARTS(LostAtCalls, NumberOfPart,
                          [](const auto&) { return std::string("Losses"); });

TEST_P(LostAtCalls, ExpertsOfAnUnnamedDeviceAreComputedByTheCpu) {
  const TinySpec spec = AllOf("olmoe");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  LoseAt(model, Auto(OnDevice(spec, PlaceMode::kGpuCentric, 6)), Short(model, OnCpu()), "experts");
}

TEST_P(LostAtCalls, ANamedDeviceEndsTheRunWithASentence) {
  const TinySpec spec = AllOf("olmoe");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  LoseAt(model, OnDevice(spec, PlaceMode::kGpuCentric, 6), Short(model, OnCpu()), "named");
}

TEST_P(LostAtCalls, TheDensePartComesBack) {
  TinySpec spec = AllOf("qwen2moe");  // with a shared expert
  spec.layers = 6;                    // the device computes these in two parts
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const Run cpu = Short(model, OnCpu());
  LoseAt(model, Auto(Whole(spec)), cpu, "dense");
  LoseAt(model, Whole(spec), cpu, "dense, named", kSpread / 2);
}

// The disk fails, too, while the CPU computes the texts again: with the tokens alone no text can go
// on, whatever is asked of it then.
TEST_F(LostDeviceTest, TextsThatCannotBeComputedAgainEndTheEngine) {
  for (const std::string arch : {"qwen2moe", "gpt-oss"}) {
    TinySpec spec = AllOf(arch);
    spec.context = 2048;
    spec.window = 24;
    const std::string model = WriteTinyModel(folder_.path(), spec);
    EngineOptions options = Auto(Whole(spec));
    options.ctx = 2048;
    options.chunk = 32;
    options.sequences = 2;
    options.io_depth = 4;
    std::vector<FaultReader*> disks;
    FaultScript next;
    options.wrap_reader = [&](std::unique_ptr<BlockReader> inner) {
      auto disk = std::make_unique<FaultReader>(std::move(inner), next);
      disks.push_back(disk.get());
      return disk;
    };
    EngineOptions on_cpu = options;
    on_cpu.device = {.name = "cpu"};
    const auto cpu = NativeEngine::Open(model, on_cpu);
    ASSERT_TRUE(cpu) << cpu.error().message;
    const uint64_t reads_of_start = disks.back()->submitted();

    const auto engine = NativeEngine::Open(model, options);
    ASSERT_TRUE(engine) << engine.error().message;
    const std::vector<Token> text = SeededTokens(40, (*engine)->spec().n_vocab, 3);
    Sequence first = (*engine)->NewSequence();
    Sequence second = (*engine)->NewSequence();
    ASSERT_TRUE(Append(**engine, first, text));
    ASSERT_TRUE(Append(**engine, second, text));
    next.ErrorFrom(reads_of_start, EIO);
    const LostDevice lost({.first = 0});
    const auto failed = Append(**engine, second, {&text[0], 1});
    ASSERT_FALSE(failed) << arch;
    EXPECT_EQ(failed.error().code, Errc::kDevice);
    EXPECT_TRUE(failed.error().message.contains("compute the texts again"))
        << failed.error().message;
    ASSERT_TRUE((*engine)->closed()) << arch;
    for (Sequence* sequence : {&first, &second}) {
      const auto again = Append(**engine, *sequence, {&text[0], 1});
      ASSERT_FALSE(again) << arch;
      EXPECT_EQ(again.error().message, failed.error().message);
      sequence->Keep();
      const Sequence fork = sequence->Fork();
      EXPECT_LE(sequence->Reach(30), 30U);
      EXPECT_EQ(sequence->GoBack(0), 0U);
    }
  }
}

// Experts that are there before the first token, and those that move back from there.
TEST_P(LostAtCalls, WhatWasMovedThereIsReadAgain) {
  const TinySpec spec = AllOf("qwen3moe");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const Run cpu = Short(model, OnCpu());
  LearnPaths(model);
  EngineOptions options = Auto(OnDevice(spec, PlaceMode::kAuto, 6));
  options.device.tiers = Tiers::kExclusive;
  LoseAt(model, options, cpu, "exclusive");
}

// Costs are measured at the start.
TEST_F(LostDeviceTest, WhileItIsMeasured) {
  const TinySpec spec = AllOf("olmoe");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const Run cpu = Short(model, OnCpu());
  EngineOptions options = Auto(OnDevice(spec, PlaceMode::kGpuCentric, 6));
  options.device.latency_model = "";
  const LostDevice never({});
  ASSERT_TRUE(Short(model, options).status);
  const std::vector<int64_t> calls = LostDevice::calls();
  for (const DeviceCall kind :
       {DeviceCall::kCopyThere, DeviceCall::kCopyBack, DeviceCall::kLaunch, DeviceCall::kWait}) {
    const int k = static_cast<int>(kind);
    const int64_t n = calls[static_cast<size_t>(kind)];
    for (const int64_t count : {int64_t{1}, INT64_MAX}) {
      const LostDevice lost({.first = n / 3, .count = count, .kind = k});
      const Run run = Short(model, options);
      ExpectNear(run, cpu, kEightBits, NameOf(kind));
    }
  }
}

// Reads that an error of later calls has lost do not seem to have landed.
TEST_F(LostDeviceTest, QueuedReadsThatWereLostAreAnError) {
  const auto device = ComputeDevice::Open(info_);
  ASSERT_TRUE(device) << device.error().message;
  DeviceLink link(*device);
  const auto buffer = BackendBuffer::On(device->backend(), 4096);
  ASSERT_TRUE(buffer) << buffer.error().message;
  std::vector<std::byte> back(64);
  const auto queue = [&] {
    return link.QueueReads({{.from = buffer->bytes(), .to = std::span(back)}}, true);
  };
  const auto first = queue();
  ASSERT_TRUE(first) << first.error().message;
  {
    const LostDevice lost(
        {.first = 0, .count = 1, .kind = static_cast<int>(DeviceCall::kCopyBack)});
    EXPECT_FALSE(queue());
    EXPECT_EQ(LostDevice::thrown(), 1);
  }
  const Status landed = link.Land(*first);
  ASSERT_FALSE(landed);
  EXPECT_EQ(landed.error().code, Errc::kDevice);
  const auto next = queue();
  ASSERT_TRUE(next) << next.error().message;
  EXPECT_TRUE(link.Land(*next));
}

TEST_F(LostDeviceTest, AWaitThatLastsIsSaid) {
  const auto device = ComputeDevice::Open(info_);
  ASSERT_TRUE(device) << device.error().message;
  constexpr double kPatience = 0.05;
  DeviceLink link(*device, kPatience);
  const auto buffer = BackendBuffer::On(device->backend(), 4096);
  ASSERT_TRUE(buffer) << buffer.error().message;
  std::vector<std::byte> back(64);
  const Border border{.reads = {{.from = buffer->bytes(), .to = std::span(back)}}};
  const LostDevice slow({.first = 0,
                         .count = 1,
                         .kind = static_cast<int>(DeviceCall::kWait),
                         .seconds = 8 * kPatience});
  testing::internal::CaptureStderr();
  EXPECT_TRUE(link.Cross(border));
  EXPECT_TRUE(link.Cross(border));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(LostDevice::thrown(), 1);
  const std::string sentence = info_.name + " has not answered for";
  EXPECT_EQ(said.find(sentence), said.rfind(sentence)) << said;
  EXPECT_NE(said.find(sentence), std::string::npos) << said;
}

TEST_F(LostDeviceTest, ProfilingEndsWithASentence) {
  for (int kind = 0; kind < kDeviceCalls; ++kind) {
    if (static_cast<DeviceCall>(kind) == DeviceCall::kFree) continue;
    const LostDevice lost({.first = 1, .kind = kind});
    const Result<DeviceProfile> profile = ProfileDevice(info_, {.threads = 2});
    if (LostDevice::thrown() == 0 || profile) continue;  // pinned memory is not needed
    EXPECT_EQ(profile.error().code, Errc::kDevice) << profile.error().message;
  }
}

}  // namespace
}  // namespace moestro
