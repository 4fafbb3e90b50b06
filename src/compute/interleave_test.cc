// SPDX-License-Identifier: MIT
// Kernels that lay rows out anew must give the bits of the file's layout.
#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "compute/cpu_device.h"
#include "compute/expert_kernel.h"
#include "compute/kernels/isa.h"
#include "compute/row_check.h"

namespace moestro {
namespace {

constexpr int64_t kInterleavedIn = 768;
constexpr int64_t kInterleavedTokens = 19;
constexpr std::byte kGuard{0x5a};

struct alignas(64) CacheLine {
  std::byte bytes[64];
};

std::vector<float> Normal(int64_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(engine);
  return values;
}

// Every kernel that interleaves and that this machine can run.
std::vector<ExpertKernel> Interleaving() {
  const CpuTraits traits = CpuTraits::Load().value();
  std::vector<ExpertKernel> kernels;
  for (int t = 0; t < GGML_TYPE_COUNT; ++t) {
    for (const Isa& isa : IsasHere()) {
      const auto own = OwnKernel(static_cast<ggml_type>(t), isa, traits);
      if (own && own->interleave != nullptr) kernels.push_back(*own);
    }
  }
  return kernels;
}

// Rows at an odd place, and a guard behind them.
std::vector<std::byte> MakeRows(ggml_type type, int64_t n_rows) {
  const std::vector<float> values = Normal(kInterleavedIn * n_rows, 31);
  std::vector<std::byte> rows(ggml_row_size(type, kInterleavedIn) * static_cast<size_t>(n_rows) + 1,
                              kGuard);
  MakeUpWeights(type, values, kInterleavedIn, std::span(rows).first(rows.size() - 1));
  return rows;
}

// The activations of a token, made once.
const std::vector<float>& TokenValues(size_t token) {
  static std::map<size_t, std::vector<float>> made;
  std::vector<float>& values = made[token];
  if (values.empty()) values = Normal(kInterleavedIn, static_cast<uint32_t>(200 + token));
  return values;
}

// [token][row], and a guard behind the last row of each.
std::vector<std::vector<float>> ProductsByKernel(const ExpertKernel& kernel, const std::byte* rows,
                                                 int64_t n_rows, int64_t n_tokens,
                                                 bool is_interleaved) {
  std::vector<std::vector<CacheLine>> tokens(static_cast<size_t>(n_tokens));
  std::vector<std::vector<float>> out(tokens.size());
  std::vector<const std::byte*> x;
  std::vector<float*> to;
  for (size_t t = 0; t < tokens.size(); ++t) {
    tokens[t].resize(kernel.activation_bytes(kInterleavedIn) / sizeof(CacheLine));
    kernel.quantise(kernel, TokenValues(t).data(), tokens[t].data()->bytes, kInterleavedIn);
    x.push_back(tokens[t].data()->bytes);
    out[t].assign(static_cast<size_t>(n_rows) + 1, -77.0F);
    to.push_back(out[t].data());
  }
  kernel.multiply(kernel, {.rows = rows,
                           .row_bytes = ggml_row_size(kernel.weight_type, kInterleavedIn),
                           .n_in = kInterleavedIn,
                           .n_rows = n_rows,
                           .activations = x.data(),
                           .out = to.data(),
                           .n_tokens = n_tokens,
                           .is_interleaved = is_interleaved});
  for (const auto& row : out) EXPECT_EQ(row.back(), -77.0F) << "written behind the last row";
  return out;
}

void Interleave(const ExpertKernel& kernel, std::byte* rows, int64_t n_rows) {
  const size_t row_bytes = ggml_row_size(kernel.weight_type, kInterleavedIn);
  std::vector<std::byte> scratch(ExpertKernel::kInterleavedRows * row_bytes + 1, kGuard);
  kernel.interleave({.rows = rows, .row_bytes = row_bytes, .n_rows = n_rows}, scratch.data());
  EXPECT_EQ(scratch.back(), kGuard) << "written behind the scratch memory";
}

TEST(Interleave, GivesTheSameBitsForEveryNumberOfRows) {
  for (const ExpertKernel& kernel : Interleaving()) {
    for (const int64_t n_rows : {1, 3, 8, 15, 16, 17, 31, 35, 48, 61}) {
      SCOPED_TRACE(std::string(ggml_type_name(kernel.weight_type)) + " " + kernel.name +
                   " n_rows " + std::to_string(n_rows));
      const std::vector<std::byte> file = MakeRows(kernel.weight_type, n_rows);
      std::vector<std::byte> rows = file;
      Interleave(kernel, rows.data(), n_rows);
      EXPECT_EQ(rows.back(), kGuard) << "written behind the rows";
      EXPECT_TRUE(n_rows < ExpertKernel::kInterleavedRows || rows != file) << "nothing was done";
      // One token is another way through the kernel than many.
      for (const int64_t n_tokens : {int64_t{1}, kInterleavedTokens}) {
        EXPECT_EQ(ProductsByKernel(kernel, rows.data(), n_rows, n_tokens, true),
                  ProductsByKernel(kernel, file.data(), n_rows, n_tokens, false));
      }
    }
  }
}

TEST(Interleave, MayBeSplitAtWholeGroups) {
  constexpr int64_t kRows = 61;
  constexpr int64_t kUpper = 2 * ExpertKernel::kInterleavedRows;
  for (const ExpertKernel& kernel : Interleaving()) {
    SCOPED_TRACE(std::string(ggml_type_name(kernel.weight_type)) + " " + kernel.name);
    std::vector<std::byte> whole = MakeRows(kernel.weight_type, kRows);
    std::vector<std::byte> parts = whole;
    const size_t upper_bytes = ggml_row_size(kernel.weight_type, kInterleavedIn) * kUpper;
    Interleave(kernel, whole.data(), kRows);
    Interleave(kernel, parts.data(), kUpper);
    Interleave(kernel, parts.data() + upper_bytes, kRows - kUpper);
    EXPECT_EQ(parts, whole);
    const auto all = ProductsByKernel(kernel, whole.data(), kRows, kInterleavedTokens, true);
    const auto lower = ProductsByKernel(kernel, whole.data() + upper_bytes, kRows - kUpper,
                                        kInterleavedTokens, true);
    for (size_t t = 0; t < lower.size(); ++t) {
      EXPECT_TRUE(std::equal(lower[t].begin(), lower[t].end(), all[t].begin() + kUpper)) << t;
    }
  }
}

}  // namespace
}  // namespace moestro
