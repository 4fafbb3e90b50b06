// SPDX-License-Identifier: MIT
// Who is on a device before the first token.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/append.h"
#include "learned/beside_model.h"
#include "native/native_engine.h"
#include "tests/support/device_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

class DeviceFill : public DeviceFixture {
 protected:
  struct Ran {
    DeviceStats device;
    std::vector<Token> best;  // of every step
  };
  static Ran Decode(const std::string& model, const EngineOptions& options) {
    Ran ran;
    const auto engine = NativeEngine::Open(model, options);
    EXPECT_TRUE(engine) << engine.error().message;
    Sequence sequence = (*engine)->NewSequence();
    for (const Token token : SeededTokens(30, (*engine)->spec().n_vocab, 4)) {
      const auto logits = Append(**engine, sequence, {&token, 1});
      EXPECT_TRUE(logits) << logits.error().message;
      if (logits) ran.best.push_back(Greedy(*logits));
    }
    ran.device = (*engine)->learned().device;
    return ran;
  }
};

// Of the first prompt's routing the most popular, as the observer counted them.
TEST_F(DeviceFill, WithoutPathsTheFirstPromptFillsIt) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const auto engine = NativeEngine::Open(model, OnDevice(spec, PlaceMode::kCooperative, 14));
  ASSERT_TRUE(engine) << engine.error().message;
  Sequence sequence = (*engine)->NewSequence();
  const std::vector<Token> tokens = SeededTokens(31, (*engine)->spec().n_vocab, 4);
  ASSERT_TRUE((*engine)->Step(RowsOf(sequence, std::span(tokens).first(30), RowKind::kPrompt)));
  EXPECT_EQ((*engine)->learned().device.filled, 0U);
  ASSERT_TRUE((*engine)->Step(RowsOf(sequence, std::span(tokens).last(1), RowKind::kDecode)));
  const DeviceStats filled = (*engine)->learned().device;
  EXPECT_EQ(filled.filled, (*engine)->memory().devices.at(0).slots);
  EXPECT_GT(filled.on_device, 0U);  // of the first token's
}

// It waits for no copy any more, and what was not copied is not there.
TEST_F(DeviceFill, AStopEndsIt) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = OnDevice(spec, PlaceMode::kCooperative);
  NativeEngine* running = nullptr;
  const auto copies = std::make_shared<std::atomic<int>>(0);
  const auto stops = std::make_shared<std::atomic<bool>>(false);
  options.device.faults.fails_copy = [&running, copies, stops] {
    if (stops->load() && copies->fetch_add(1) == 3) running->RequestStop();
    return false;
  };
  const auto engine = NativeEngine::Open(model, options);
  ASSERT_TRUE(engine) << engine.error().message;
  running = engine->get();
  Sequence sequence = (*engine)->NewSequence();
  const std::vector<Token> tokens = SeededTokens(41, (*engine)->spec().n_vocab, 4);
  ASSERT_TRUE((*engine)->Step(RowsOf(sequence, std::span(tokens).first(40), RowKind::kPrompt)));
  *stops = true;
  const Batch token = RowsOf(sequence, std::span(tokens).last(1), RowKind::kDecode);
  const Status stopped = (*engine)->Step(token);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Errc::kInterrupted);
  EXPECT_LE(copies->load(), 6);  // two experts of three matrices
  const Status again = (*engine)->Step(token);
  EXPECT_TRUE(again) << again.error().message;
}

TEST_F(DeviceFill, WithoutPathsItStartsEmpty) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const Ran ran = Decode(model, OnDevice(spec, PlaceMode::kCooperative, 14));
  EXPECT_EQ(ran.device.filled, 0U);
  EXPECT_EQ(ran.device.on_device, 0U);
}

TEST_F(DeviceFill, PopularOnesComputeThereFromTheFirstToken) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  LearnPaths(model);
  EngineOptions options = OnDevice(spec, PlaceMode::kCooperative);  // room for all
  const Ran all = Decode(model, options);
  EXPECT_EQ(all.device.filled, 36U);
  EXPECT_EQ(all.device.on_device, all.device.experts);
  EXPECT_EQ(all.device.promotions, 0U);
  // The same tokens as on the CPU, but for ties.
  const Ran cpu = Decode(model, OnCpu());
  size_t same = 0;
  for (size_t i = 0; i < cpu.best.size(); ++i) same += cpu.best[i] == all.best[i];
  EXPECT_GE(same * 10, cpu.best.size() * 9);
  // One token's experts of a layer are slots enough for all to pass through.
  options.cache = CacheSize{.percent = 9.0};
  EXPECT_EQ(Decode(model, options).best, all.best);
}

TEST_F(DeviceFill, WhatCannotBeCopiedIsNotThere) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  LearnPaths(model);
  EngineOptions options = OnDevice(spec, PlaceMode::kCooperative);
  const auto copies = std::make_shared<std::atomic<int>>(0);
  options.device.faults.fails_copy = [copies] { return ++*copies > 60 && *copies % 3 == 0; };
  const Ran some = Decode(model, options);
  EXPECT_GT(some.device.on_device, 0U);
  EXPECT_LT(some.device.on_device, some.device.experts);
}

TEST_F(DeviceFill, PathsOfAnotherModelAreRefused) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  TinySpec other = spec;
  other.experts = 10;
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const std::string small = WriteTinyModel(folder_.path(), other);
  EngineOptions options = OnDevice(spec, PlaceMode::kAuto);
  LearnPaths(small);
  options.paths = PathsBeside(small);
  const auto engine = NativeEngine::Open(model, options);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, Errc::kInvalidRequest);
  EXPECT_NE(engine.error().message.find("moestro profile"), std::string::npos)
      << engine.error().message;
}

}  // namespace
}  // namespace moestro
