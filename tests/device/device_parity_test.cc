// SPDX-License-Identifier: MIT
// Prompts of many lengths, all of them on the device, against libllama on the same weights as
// floats: the lengths are around the borders at which ggml's backends take another kernel (one row,
// up to 8, tiles of 32 and 64) and our launches another one (512 pairs).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/number.h"
#include "tests/device/device_testing.h"
#include "tests/support/float_copy_testing.h"
#include "tests/support/llama_reference_testing.h"
#include "tests/support/one_sequence_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kContext = 320;
constexpr uint32_t kLayers = 2;

// The most that a logit may be off, in standard deviations of its row.
//
// The reference's weights are what the device's mean, so nothing differs but what the device
// rounds. Many rows are multiplied in halves: weights and activations are rounded to 11 bits, off
// by h = 2^-11 / sqrt(3) of their size on average; the sum of n products is rounded at each of its
// n steps at the most, when it is as large as sqrt(i / n) of its final size: h * sqrt(n / 2). One
// product is off by h * sqrt(2 + n / 2), 0.32 % for 256 values (measured: 0.24 %, and 0.10 % where
// the device has matrix cores, which round once in 16 steps). Each layer has seven in a row or
// beside each other, then there are the logits: sqrt(7 * layers + 1) of that, if all of them
// counted in full. Of 300 rows with 512 logits the largest is within five typical ones.
double MostFor(uint32_t width) {
  const double h = std::ldexp(1.0, -11) / std::sqrt(3.0);
  const double product = h * std::sqrt(2.0 + width / 2.0);
  return 5.0 * product * std::sqrt(7.0 * kLayers + 1.0);
}

// What one row's choice of experts says against the reference's router: the largest logit that was
// left out less the smallest that was taken, in standard deviations; 0 for the same choice.
double GapOf(std::span<const float> logits, std::span<const ExpertId> chosen) {
  float least = std::numeric_limits<float>::infinity();
  float most = -std::numeric_limits<float>::infinity();
  for (uint16_t e = 0; e < logits.size(); ++e) {
    if (std::ranges::contains(chosen, ExpertId{e})) {
      least = std::min(least, logits[e]);
    } else {
      most = std::max(most, logits[e]);
    }
  }
  return most > least ? (most - least) / Deviation(logits) : 0.0;
}

class DeviceParity : public DeviceTest {
 protected:
  struct Engines {
    std::unique_ptr<OneSequence> device;
    std::unique_ptr<LlamaReference> reference;
  };
  Engines Open(const TinySpec& spec) {
    const std::string path = WriteTinyModel(folder_.path(), spec);
    EngineOptions options = OnDevice(spec, PlaceMode::kGpuCentric);
    options.ctx = kContext;
    options.chunk = kContext;
    options.sequences = 1;
    options.device.dense_on_cpu = false;
    options.device.vram = {256 * kMiB};
    auto device = OneSequence::Open(path, options);
    EXPECT_TRUE(device) << device.error().message;
    if (!device) return {};
    EXPECT_GT((*device)->memory().devices.at(0).dense, 0U);
    return {.device = *std::move(device),
            .reference = std::make_unique<LlamaReference>(WriteInFloats(path), kContext, kContext)};
  }
};

constexpr const char* kParityTypes[] = {"Q4_K", "Q6_K", "Q8_0", "Q4_0"};

// A product of types and widths. The cover has each of both.
struct TypeAndWidth {
  std::string type;
  uint32_t width = 256;
};
void PrintTo(const TypeAndWidth& one, std::ostream* out) { *out << one.type << " " << one.width; }
std::vector<TypeAndWidth> TypesAndWidthsOfPart(uint32_t part) {
  std::vector<TypeAndWidth> cells;
  for (const char* type : kParityTypes) {
    for (const uint32_t width : {256U, 512U}) cells.push_back({type, width});
  }
  return CellsOfPart(part, cells, [](const TypeAndWidth& one) {
    return Keys{one.type, Format("width {}", one.width)};
  });
}

class DeviceParityOfWidths : public DeviceParity,
                             public testing::WithParamInterface<TypeAndWidth> {};

// Every row takes all experts, so that none can be chosen otherwise.
TEST_P(DeviceParityOfWidths, PromptsOfAllLengthsAreAsInFloats) {
  const auto& [type, width] = GetParam();
  const Engines both = Open({.arch = "olmoe",
                             .type = type,
                             .layers = kLayers,
                             .experts = 4,
                             .used = 4,
                             .embd = width,
                             .ff = 256,
                             .heads = width / 64});
  ASSERT_NE(both.device, nullptr);
  const uint32_t n_vocab = both.reference->n_vocab();
  for (const uint32_t length : {1U, 31U, 32U, 33U, 64U, 65U, 100U, 300U}) {
    both.device->Reset();
    both.reference->Reset();
    const std::vector<Token> prompt = SeededTokens(length, n_vocab, 7 + length);
    const auto ours = both.device->AppendAll(prompt);
    ASSERT_TRUE(ours) << ours.error().message;
    const std::vector<float> theirs = both.reference->Append(prompt);
    ASSERT_EQ(ours->size(), theirs.size());
    double largest = 0.0;
    for (size_t at = 0; at < theirs.size(); at += n_vocab) {
      const std::span row(theirs.data() + at, n_vocab);
      const double deviation = Deviation(row);
      for (size_t i = 0; i < n_vocab; ++i) {
        const double d = std::abs(static_cast<double>((*ours)[at + i]) - row[i]);
        largest = std::max(largest, std::isnan(d) ? 1e9 : d / deviation);
      }
    }
    EXPECT_LT(largest, MostFor(width)) << length << " tokens, width " << width;
  }
  EXPECT_GT(both.device->engine().learned().device.layers_there, 0U);
}

MOESTRO_INSTANTIATE_PARTS(DeviceParityOfWidths, TypesAndWidthsOfPart, [](const auto& one) {
  return Format("{}_{}", one.param.type, one.param.width);
});

// A product of types and families. The cover has each of both.
struct TypeAndFamily {
  std::string type;
  std::string arch;
};
void PrintTo(const TypeAndFamily& one, std::ostream* out) { *out << one.type << " " << one.arch; }
std::vector<TypeAndFamily> TypesAndFamiliesOfPart(uint32_t part) {
  std::vector<TypeAndFamily> cells;
  for (const char* type : kParityTypes) {
    for (const char* arch : {"llama", "olmoe"}) cells.push_back({type, arch});
  }
  return CellsOfPart(part, cells,
                     [](const TypeAndFamily& one) { return Keys{one.type, one.arch}; });
}

class DeviceParityOfChoices : public DeviceParity,
                              public testing::WithParamInterface<TypeAndFamily> {};

// Where there is a choice, the first row of a prompt that is computed by others than in floats had
// a tie, of a router's logits that are off by no more than any logit may be.
TEST_P(DeviceParityOfChoices, OtherExpertsAreChosenOnlyAtTies) {
  const auto& [type, arch] = GetParam();
  const Engines both =
      Open({.arch = arch, .type = type, .layers = kLayers, .experts = 8, .used = 2, .ff = 256});
  ASSERT_NE(both.device, nullptr);
  const size_t n_expert = 8;
  for (const uint32_t length : {69U, 71U, 300U}) {
    both.device->Reset();
    both.reference->Reset();
    std::vector<Routing> routings;
    both.device->SetRouteObserver([&](const SeenRouting& s) { routings.push_back(s.routing); });
    const std::vector<Token> prompt = SeededTokens(length, both.reference->n_vocab(), 11 + length);
    ASSERT_TRUE(both.device->AppendAll(prompt));
    both.reference->Append(prompt);
    const auto& scores = both.reference->router_scores();
    ASSERT_EQ(scores.size(), kLayers);
    ASSERT_EQ(routings.size(), kLayers);
    // A row's choice bears on itself in later layers, and on later rows there.
    double gap = 0.0;
    for (size_t row = 0; row < length && gap == 0.0; ++row) {
      for (size_t l = 0; l < kLayers && gap == 0.0; ++l) {
        gap = GapOf(std::span(scores[l]).subspan(row * n_expert, n_expert),
                    routings[l].experts_of(row));
      }
    }
    EXPECT_LT(gap, 2 * MostFor(256)) << arch << ", " << length << " tokens";
  }
}

MOESTRO_INSTANTIATE_PARTS(DeviceParityOfChoices, TypesAndFamiliesOfPart, [](const auto& one) {
  return Format("{}_{}", one.param.type, one.param.arch);
});

}  // namespace
}  // namespace moestro
