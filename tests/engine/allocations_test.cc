// SPDX-License-Identifier: MIT
// A layer of a decode step allocates nothing once the engine has its room: a step of a model with
// many layers takes no more allocations on the engine's thread than one of a model with few.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "engine/append.h"
#include "native/native_engine.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace {

// Of this thread, since it began.
thread_local uint64_t allocations = 0;

void* Allocate(size_t bytes, size_t alignment) {
  ++allocations;
  bytes = (bytes + alignment - 1) / alignment * alignment;
  void* const memory = std::aligned_alloc(alignment, bytes == 0 ? alignment : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Those for arrays call these. In a sanitizer's library those that do not throw call their own.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return Allocate(bytes, alignof(std::max_align_t));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new(size_t bytes) { return Allocate(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace moestro {
namespace {

constexpr uint32_t kWarmUp = 24;  // longer than every ring of the planner and the policies
constexpr uint32_t kSteps = 16;

// Of kSteps decode steps behind kWarmUp ones, every expert resident.
uint64_t AllocationsOf(const TinySpec& spec, const EngineOptions& options) {
  const TempFolder folder;
  const std::string model = WriteTinyModel(folder.path(), spec);
  const auto engine = NativeEngine::Open(model, options);
  EXPECT_TRUE(engine) << engine.error().message;
  if (!engine) return 0;
  Sequence sequence = (*engine)->NewSequence();
  uint64_t before = 0;
  for (uint32_t i = 0; i < kWarmUp + kSteps; ++i) {
    const std::vector<Token> token = SeededTokens(1, 512, i);
    if (i == kWarmUp) before = allocations;
    EXPECT_TRUE(Append(**engine, sequence, token));
  }
  return allocations - before;
}

class Allocations : public testing::TestWithParam<std::string> {};

TEST_P(Allocations, ALayerOfAResidentModelTakesNone) {
  EngineOptions options;
  options.ctx = 64;
  options.threads = 2;
  options.cache = CacheSize{.percent = 100.0};
  // Of F32: our nodes multiply so small matrices of this type on every processor.
  TinySpec spec{.arch = GetParam(), .type = "F32", .layers = 3, .embd = 256, .ff = 256};
  const uint64_t few = AllocationsOf(spec, options);
  spec.layers = 9;
  // One in each step of one layer would be kSteps more; statistics of steps differ by less.
  EXPECT_LT(AllocationsOf(spec, options), few + kSteps);
}

INSTANTIATE_TEST_SUITE_P(Families, Allocations,
                         testing::Values("qwen3moe", "olmoe", "llama", "gpt-oss", "qwen2moe",
                                         "bailingmoe2"),
                         [](const auto& of) { return CaseName(of.param); });

}  // namespace
}  // namespace moestro
