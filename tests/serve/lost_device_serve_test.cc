// SPDX-License-Identifier: MIT
// A server whose device is lost: clients that are being answered get the rest, and later clients
// get the whole answer, as from a server without a device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/number.h"
#include "engine/append.h"
#include "tests/device/device_testing.h"
#include "tests/serve/scheduler_testing.h"
#include "tests/support/device_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/throwing_backend_testing.h"

namespace moestro {
namespace {

// At temperature 0, so that what is said depends on roundings only where two tokens are all but
// equal.
const std::vector<Wish> kQuestions = {
    {.prompt = "Once upon a time"},
    {.prompt = "The little dog ran to the big tree and"},
    {.prompt = "Tom and Lily went to the park. They saw a bird. The bird said hello to them and "
               "asked if they wanted to fly over the trees with it. Tom said yes, but"},
    {.prompt = "A cat"}};

class LostWhileServing : public DeviceFixture {
 protected:
  void SetUp() override {
    LostDevice::LeaveMatrixCores();
    DeviceFixture::SetUp();
  }
  static EngineOptions Options() {
    EngineOptions options;
    options.threads = 2;
    options.ctx = 200;
    options.sequences = 8;
    options.positions = 800;
    options.chunk = 32;
    options.cache = CacheSize{.percent = 50.0};
    options.device.name = "cpu";
    return options;
  }
  EngineOptions There(bool has_dense) const {
    EngineOptions options = Options();
    options.device.name = name_;
    options.device.goes_on_if_lost = true;  // as a server has it
    options.device.dense_on_cpu = !has_dense;
    options.device.place = PlaceMode::kGpuCentric;
    options.device.latency_model = CostsFile(MixedCosts());
    options.device.vram = {64 * kMiB};
    return options;
  }
  static std::vector<std::string> TextsOf(const std::vector<Said>& all) {
    std::vector<std::string> texts;
    for (const Said& said : all) {
      EXPECT_FALSE(said.error) << said.error->message;
      texts.push_back(said.text);
    }
    return texts;
  }
  static std::vector<std::string> AnswersOf(NativeEngine& engine) {
    // Texts get tokens between a prompt's layers wherever they can.
    Scheduler scheduler(engine, DemoVocab(), {.gap_seconds = 0.0});
    return TextsOf(ServeAll(scheduler, kQuestions));
  }
  // Each token of the answer is the best one that the CPU knows after those before it, but for what
  // roundings of the device that computed it may change.
  static void ExpectChosen(NativeEngine& cpu, const std::string& prompt, const std::string& answer,
                           const std::string& what) {
    const auto asked = DemoVocab().Tokenize(prompt, true, false);
    const auto all = DemoVocab().Tokenize(prompt + answer, true, false);
    ASSERT_TRUE(asked && all);
    ASSERT_GT(all->size(), asked->size() + 15) << what << ": " << answer;
    ASSERT_TRUE(std::ranges::equal(std::span(*all).first(asked->size()), *asked));
    Sequence sequence = cpu.NewSequence();
    const auto logits = AppendAll(cpu, sequence, *all);
    ASSERT_TRUE(logits) << logits.error().message;
    const size_t n_vocab = cpu.spec().n_vocab;
    for (size_t i = asked->size(); i < all->size(); ++i) {
      const auto row = std::span(*logits).subspan((i - 1) * n_vocab, n_vocab);
      const double behind = std::ranges::max(row) - row[static_cast<size_t>((*all)[i])];
      EXPECT_LE(behind, 2.0 * kEightBits * Deviation(row))
          << what << ", token " << i - asked->size() << " of " << answer;
    }
  }
  static std::vector<std::string> OnTheCpu() {
    auto engine = NativeEngine::Open(kDemo, Options());
    EXPECT_TRUE(engine) << engine.error().message;
    return AnswersOf(**engine);
  }
};

// The first call that fails, counted from the start, and whether the dense part is there.
struct LossOfServer {
  int64_t first = 0;
  bool has_dense = true;
};
void PrintTo(const LossOfServer& one, std::ostream* out) {
  *out << "call " << one.first << (one.has_dense ? ", dense part there" : "");
}

// A product of calls and places of the dense part. The cover has each of both.
std::vector<LossOfServer> LossesOfServer(uint32_t part) {
  std::vector<LossOfServer> cells;
  for (const bool has_dense : {true, false}) {
    for (const int64_t first : {0, 1, 60, 200, 300}) cells.push_back({first, has_dense});
  }
  return CellsOfPart(part, cells, [](const LossOfServer& one) {
    return Keys{Format("call {}", one.first), one.has_dense ? "dense" : "experts"};
  });
}

class LostAtACall : public LostWhileServing, public testing::WithParamInterface<LossOfServer> {};

// While four are answered.
TEST_P(LostAtACall, AnswersGoOnFromMemoryAndDisk) {
  const auto& [first, has_dense] = GetParam();
  auto cpu = NativeEngine::Open(kDemo, Options());
  ASSERT_TRUE(cpu) << cpu.error().message;
  auto engine = NativeEngine::Open(kDemo, There(has_dense));
  ASSERT_TRUE(engine) << engine.error().message;
  ASSERT_EQ(engine->get()->memory().devices.at(0).dense > 0, has_dense);
  const LostDevice lost({.first = first});
  const std::vector<std::string> answers = AnswersOf(**engine);
  ASSERT_EQ(answers.size(), kQuestions.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    ExpectChosen(**cpu, kQuestions[i].prompt, answers[i], Format("answer {}", i));
  }
  EXPECT_GT(LostDevice::thrown(), 0);
  engine->reset();  // while it is lost
}

MOESTRO_INSTANTIATE_PARTS(LostAtACall, LossesOfServer, [](const auto& one) {
  return Format("{}_{}", one.param.has_dense ? "dense" : "experts", one.param.first);
});

// Texts that were kept before are found again; what is kept after it, too.
TEST_F(LostWhileServing, WhatWasKeptIsStillGood) {
  const std::vector<std::string> expected = OnTheCpu();
  const TempFolder kept;
  auto engine = NativeEngine::Open(kDemo, There(true));
  ASSERT_TRUE(engine) << engine.error().message;
  SchedulerOptions options;
  options.saved_texts_folder = kept.path();
  options.cache_folder = kept.path() / "prefixes";
  options.cache_disk = 64 * kMiB;
  options.rest_seconds = 0.0;
  std::optional<LostDevice> lost;
  Scheduler scheduler(**engine, DemoVocab(), options);
  ServeWhile(scheduler, [&] {
    std::string said;
    Answer(scheduler, kQuestions[0], &said);
    EXPECT_EQ(said, expected[0]);
    EXPECT_TRUE(Do(scheduler, SaveAction::kSave, 0, "before"));
    lost.emplace(LostDevice::When{.first = 0});
    // Cells cannot be fetched from there any more; that is an answer, and not the end.
    [[maybe_unused]] const Outcome outcome = Do(scheduler, SaveAction::kSave, 0, "while");
    for (const size_t question : {size_t{0}, size_t{1}, size_t{0}}) {
      said.clear();
      Answer(scheduler, kQuestions[question], &said);
      EXPECT_EQ(said, expected[question]);
    }
    EXPECT_TRUE(Do(scheduler, SaveAction::kSave, 0, "after"));
    // Its keys and values are the device's: others than the CPU's that goes on.
    const Outcome before = Do(scheduler, SaveAction::kRestore, 0, "before");
    EXPECT_FALSE(before);
    EXPECT_TRUE(Do(scheduler, SaveAction::kRestore, 0, "after"));
    said.clear();
    Answer(scheduler, kQuestions[0], &said);
    EXPECT_EQ(said, expected[0]);
  });
  EXPECT_GT(LostDevice::thrown(), 0);
}

}  // namespace
}  // namespace moestro
