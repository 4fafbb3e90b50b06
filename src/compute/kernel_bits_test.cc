// SPDX-License-Identifier: MIT
// Products of our kernels have the same bits with every instruction set of every architecture.
#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "compute/cpu_device.h"
#include "compute/kernels/isa.h"

namespace moestro {
namespace {

constexpr int64_t kWidth = 512;
constexpr int64_t kManyRows = 16;  // a group of interleaved rows
constexpr size_t kManyTokens = 9;  // tiles of several sizes

// Quantises integers from -127 to 127, as ggml's functions do with other floats, by made-up scales.
void IntegersToQ8_0(const float* from, void* to, int64_t n) {
  auto* at = static_cast<std::byte*>(to);
  for (int64_t b = 0; b < n / 32; ++b) {
    const auto scale = static_cast<uint16_t>(0x2345 + 7 * b);
    std::memcpy(at, &scale, sizeof(scale));
    for (int i = 0; i < 32; ++i) at[2 + i] = static_cast<std::byte>(static_cast<int8_t>(*from++));
    at += 34;
  }
}

void IntegersToQ8_K(const float* from, void* to, int64_t n) {
  auto* at = static_cast<std::byte*>(to);
  for (int64_t b = 0; b < n / 256; ++b) {
    const float scale = 0.0123F * static_cast<float>(b + 1);
    std::memcpy(at, &scale, sizeof(scale));
    int16_t sums[16] = {};
    for (int i = 0; i < 256; ++i) {
      const auto value = static_cast<int8_t>(*from++);
      at[4 + i] = static_cast<std::byte>(value);
      sums[i / 16] = static_cast<int16_t>(sums[i / 16] + value);
    }
    std::memcpy(at + 260, sums, sizeof(sums));
    at += 292;
  }
}

// A type, the places of halves in its block, and the hash of products.
struct KnownType {
  ggml_type type;
  std::vector<size_t> halves;
  uint64_t hash;
};

// Random blocks. Halves among them are numbers of like size.
std::vector<std::byte> RandomRows(const KnownType& known, size_t bytes) {
  std::mt19937 random(11);
  std::vector<std::byte> rows(bytes);
  for (std::byte& byte : rows) byte = static_cast<std::byte>(random() & 0xff);
  const size_t block = ggml_type_size(known.type);
  for (size_t at = 0; at < bytes; at += block) {
    for (const size_t half : known.halves) {
      const auto number = static_cast<uint16_t>(0x2800 + (random() & 0x83ff));
      std::memcpy(&rows[at + half], &number, sizeof(number));
    }
    if (known.type == GGML_TYPE_MXFP4) rows[at] = static_cast<std::byte>(118 + (random() & 7));
  }
  return rows;
}

struct alignas(64) QuantisedLine {
  std::byte bytes[64];
};

uint64_t HashOfProducts(ExpertKernel kernel, const KnownType& known, bool is_interleaved) {
  kernel.from_float = kernel.activation_block == 32 ? IntegersToQ8_0 : IntegersToQ8_K;
  const size_t row_bytes = ggml_row_size(known.type, kWidth);
  std::vector<std::byte> rows = RandomRows(known, row_bytes * kManyRows);
  if (is_interleaved) {
    std::vector<std::byte> scratch(row_bytes * ExpertKernel::kInterleavedRows);
    kernel.interleave({rows.data(), row_bytes, kManyRows}, scratch.data());
  }
  std::mt19937 random(12);
  std::vector<std::vector<QuantisedLine>> tokens(kManyTokens);
  std::vector<const std::byte*> activations;
  std::vector<float> products(kManyTokens * kManyRows);
  std::vector<float*> out;
  for (std::vector<QuantisedLine>& token : tokens) {
    std::vector<float> values(kWidth);
    for (float& v : values) v = static_cast<float>(static_cast<int>(random() % 255) - 127);
    token.resize(kernel.activation_bytes(kWidth) / sizeof(QuantisedLine));
    kernel.quantise(kernel, values.data(), token.front().bytes, kWidth);
    activations.push_back(token.front().bytes);
    out.push_back(products.data() + out.size() * kManyRows);
  }
  kernel.multiply(kernel, {.rows = rows.data(),
                           .row_bytes = row_bytes,
                           .n_in = kWidth,
                           .n_rows = kManyRows,
                           .activations = activations.data(),
                           .out = out.data(),
                           .n_tokens = kManyTokens,
                           .is_interleaved = is_interleaved});
  uint64_t hash = 0;
  for (const float product : products) {
    EXPECT_EQ(product, product) << "a product is no number";
    hash = hash * 0x100000001b3 + std::bit_cast<uint32_t>(product) + 1;
  }
  return hash;
}

TEST(KernelBits, AreTheSameEverywhere) {
  const CpuTraits traits = CpuTraits::Load().value();
  const std::vector<KnownType> all = {
      {GGML_TYPE_Q4_0, {0}, 0x24acde5484e6986a},    {GGML_TYPE_Q4_1, {0, 2}, 0x62084252611bb4f6},
      {GGML_TYPE_Q5_0, {0}, 0xe430d6ad9fd7d6fc},    {GGML_TYPE_Q5_1, {0, 2}, 0x43842aaf67cc51bd},
      {GGML_TYPE_Q8_0, {0}, 0x904c9ea3e560ea66},    {GGML_TYPE_IQ4_NL, {0}, 0xd03976ee12786a3f},
      {GGML_TYPE_MXFP4, {}, 0x6c00022e8da8eaf1},    {GGML_TYPE_Q2_K, {80, 82}, 0x5d0b82deb3400e3b},
      {GGML_TYPE_Q3_K, {108}, 0x445c212367fb7fd1},  {GGML_TYPE_Q4_K, {0, 2}, 0x4f6e8ec32b087ded},
      {GGML_TYPE_Q5_K, {0, 2}, 0x58e2f993ee63969c}, {GGML_TYPE_Q6_K, {208}, 0x0909157360aba029},
      {GGML_TYPE_IQ4_XS, {0}, 0x10b54aa78767c685},  {GGML_TYPE_IQ2_XXS, {0}, 0xc7e09e5faad937c5},
      {GGML_TYPE_IQ2_XS, {0}, 0x758666e0a177d9c4},  {GGML_TYPE_IQ2_S, {0}, 0x79442d98a1da3812},
      {GGML_TYPE_IQ3_XXS, {0}, 0xe275342d8a5367de}, {GGML_TYPE_IQ3_S, {0}, 0xc18f8120992e7b0f},
  };
  for (const Isa& isa : IsasHere()) {
    for (const KnownType& known : all) {
      const std::optional<ExpertKernel> kernel = OwnKernel(known.type, isa, traits);
      if (!kernel) continue;
      for (const bool is_interleaved : {false, true}) {
        EXPECT_EQ(HashOfProducts(*kernel, known, is_interleaved), known.hash)
            << isa.name << " " << ggml_type_name(known.type) << " " << is_interleaved;
      }
    }
  }
}

}  // namespace
}  // namespace moestro
