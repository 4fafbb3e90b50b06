// SPDX-License-Identifier: MIT
// Every kernel of every type against the same product in double precision, and the exactness that
// the engine builds on: a result depends on its row and its token alone.
#include "compute/expert_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compute/cpu_device.h"
#include "compute/kernels/isa.h"
#include "compute/row_check.h"

namespace moestro {
namespace {

using Floats = std::vector<float>;

// Prime to every number of lanes, so that a mix-up of rows shows.
constexpr size_t kDifferentRows = 7;

Floats RandomFloats(size_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0F, 0.7F);
  Floats values(n);
  for (float& value : values) value = normal(engine);
  return values;
}

void Quantise(ggml_type type, const Floats& values, int64_t n_in, int64_t n_rows,
              std::span<std::byte> rows) {
  const bool zeros = std::ranges::all_of(values, [](float v) { return v == 0.0F; });
  if (IsSlowToQuantise(type) && zeros) {
    std::ranges::fill(rows, std::byte{0});
  } else {
    MakeUpWeights(type, std::span(values).first(static_cast<size_t>(n_rows * n_in)), n_in, rows);
  }
}

// A matrix of `type` made of `values`, repeated if they are too few rows. Its first byte lies
// `misalign` bytes behind a 64-byte boundary.
class Matrix {
 public:
  Matrix(ggml_type type, int64_t n_in, int64_t n_rows, size_t misalign, const Floats& values)
      : row_bytes_(ggml_row_size(type, n_in)),
        misalign_(misalign),
        bytes_(misalign + row_bytes_ * static_cast<size_t>(n_rows) + 64) {
    const int64_t n_different = std::min(n_rows, static_cast<int64_t>(values.size()) / n_in);
    std::vector<std::byte> rows(row_bytes_ * static_cast<size_t>(n_different));
    Quantise(type, values, n_in, n_different, rows);
    for (int64_t r = 0; r < n_rows; ++r) {
      std::memcpy(data() + static_cast<size_t>(r) * row_bytes_,
                  rows.data() + static_cast<size_t>(r % n_different) * row_bytes_, row_bytes_);
    }
  }
  Matrix(const Matrix&) = delete;  // a copy would lie at another alignment
  Matrix& operator=(const Matrix&) = delete;

  std::byte* data() {
    const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
    return bytes_.data() + (64 - address % 64) % 64 + misalign_;
  }
  const std::byte* row(int64_t r) { return data() + static_cast<size_t>(r) * row_bytes_; }
  size_t row_bytes() const { return row_bytes_; }

 private:
  size_t row_bytes_;
  size_t misalign_;
  std::vector<std::byte> bytes_;
};

struct alignas(64) Line {
  std::byte bytes[64];
};

// Quantised tokens, each 64-byte aligned.
class Tokens {
 public:
  Tokens(const ExpertKernel& kernel, const std::vector<Floats>& tokens) : store_(tokens.size()) {
    for (size_t t = 0; t < tokens.size(); ++t) {
      const auto n = static_cast<int64_t>(tokens[t].size());
      store_[t].resize(kernel.activation_bytes(n) / sizeof(Line));
      kernel.quantise(kernel, tokens[t].data(), store_[t].data()->bytes, n);
      pointers_.push_back(store_[t].data()->bytes);
    }
  }
  const std::byte* const* data() const { return pointers_.data(); }

 private:
  std::vector<std::vector<Line>> store_;
  std::vector<const std::byte*> pointers_;
};

// results[t][r].
std::vector<Floats> Multiply(const ExpertKernel& kernel, Matrix& matrix, int64_t n_in,
                             int64_t n_rows, const std::vector<Floats>& tokens) {
  const Tokens quantised(kernel, tokens);
  // A guard value behind the last row shows a write out of bounds.
  std::vector<Floats> results(tokens.size(), Floats(static_cast<size_t>(n_rows) + 1, -77.0F));
  std::vector<float*> out;
  for (Floats& result : results) out.push_back(result.data());
  kernel.multiply(kernel, {.rows = matrix.data(),
                           .row_bytes = matrix.row_bytes(),
                           .n_in = n_in,
                           .n_rows = n_rows,
                           .activations = quantised.data(),
                           .out = out.data(),
                           .n_tokens = static_cast<int64_t>(tokens.size())});
  for (Floats& result : results) {
    EXPECT_EQ(result.back(), -77.0F) << "written behind the last row";
    result.pop_back();
  }
  return results;
}

Floats Dequantise(ggml_type type, const std::byte* from, int64_t n) {
  Floats values(static_cast<size_t>(n));
  if (type == GGML_TYPE_F32) {
    std::memcpy(values.data(), from, values.size() * sizeof(float));
  } else {
    ggml_get_type_traits(type)->to_float(from, values.data(), n);
  }
  return values;
}

// Floats of a quantised activation: the two types without a to_float are read by hand.
Floats ThroughActivationType(ggml_type type, const Floats& x, const CpuTraits& traits) {
  const auto n = static_cast<int64_t>(x.size());
  if (type == GGML_TYPE_F32) return x;
  std::vector<std::byte> bytes(ggml_row_size(type, n));
  traits.Of(type)->from_float(x.data(), bytes.data(), n);
  if (type != GGML_TYPE_Q8_K && type != GGML_TYPE_Q8_1) return Dequantise(type, bytes.data(), n);
  const auto block = static_cast<size_t>(ggml_blck_size(type));
  Floats values(x.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const std::byte* at = bytes.data() + i / block * ggml_type_size(type);
    float scale = 0.0F;
    if (type == GGML_TYPE_Q8_K) {
      std::memcpy(&scale, at, sizeof(scale));
    } else {
      ggml_fp16_t half = 0;
      std::memcpy(&half, at, sizeof(half));
      scale = ggml_fp16_to_fp32(half);
    }
    values[i] = scale * static_cast<float>(static_cast<int8_t>(at[4 + i % block]));
  }
  return values;
}

struct Expected {
  double dot = 0.0;
  double bound = 0.0;  // on the error of any order of float additions
};

// The integer parts of a kernel are exact. What rounds: scale products, and one addition per block
// or (unquantised types) per weight. K-quants split a weight into a scaled number and an offset,
// each no larger than twice the largest weight of the block.
Expected Reference(ggml_type type, const Floats& w, const Floats& x) {
  const auto block = static_cast<size_t>(ggml_blck_size(type));
  const double epsilon = std::ldexp(1.0, -24);
  double dot = 0.0;
  double magnitude = 0.0;
  for (size_t at = 0; at < w.size(); at += block) {
    double largest = 0.0;
    double inputs = 0.0;
    for (size_t i = at; i < at + block; ++i) {
      dot += double{w[i]} * x[i];
      largest = std::max(largest, std::fabs(double{w[i]}));
      inputs += std::fabs(double{x[i]});
    }
    magnitude += 3.0 * largest * inputs;
  }
  const size_t blocks = w.size() / block;
  const double roundings = static_cast<double>(blocks) + 16.0;
  double bound = roundings * epsilon * magnitude;
  // Q8_1 carries the sum of its block as a half.
  if (type == GGML_TYPE_Q4_1 || type == GGML_TYPE_Q5_1) bound += magnitude * std::ldexp(1.0, -11);
#if defined(__aarch64__)
  // ggml adds up halves for this type.
  if (type == GGML_TYPE_F16) bound += magnitude * std::ldexp(1.0, -7);
#endif
  return {dot, bound};
}

std::vector<ggml_type> AllTypes() {
  const CpuTraits traits = CpuTraits::Load().value();
  std::vector<ggml_type> types;
  for (int t = 0; t < GGML_TYPE_COUNT; ++t) {
    const auto type = static_cast<ggml_type>(t);
    if (traits.Of(type)->vec_dot != nullptr) types.push_back(type);
  }
  return types;
}

// Every kernel for `type` that this machine can run.
std::vector<ExpertKernel> KernelsOf(ggml_type type) {
  const CpuTraits traits = CpuTraits::Load().value();
  std::vector<ExpertKernel> kernels = {GenericKernel(type, traits).value(),
                                       DequantisingKernel(type).value()};
  for (const Isa& isa : IsasHere()) {
    const auto own = OwnKernel(type, isa, traits);
    if (own) kernels.push_back(*own);
  }
  return kernels;
}

// Compares with the product of dequantised rows and tokens.
void ExpectAgreement(const ExpertKernel& kernel, Matrix& matrix, int64_t n_in, int64_t n_rows,
                     const std::vector<Floats>& tokens, const CpuTraits& traits) {
  const ggml_type type = kernel.weight_type;
  SCOPED_TRACE(std::string(ggml_type_name(type)) + " " + kernel.name + " n_in " +
               std::to_string(n_in) + " n_rows " + std::to_string(n_rows));
  const auto results = Multiply(kernel, matrix, n_in, n_rows, tokens);
  for (size_t t = 0; t < tokens.size(); ++t) {
    const Floats x = ThroughActivationType(kernel.activation_type, tokens[t], traits);
    for (int64_t r = 0; r < n_rows; ++r) {
      const Expected expected = Reference(type, Dequantise(type, matrix.row(r), n_in), x);
      ASSERT_NEAR(results[t][static_cast<size_t>(r)], expected.dot, expected.bound)
          << "row " << r << " token " << t;
    }
  }
}

std::string TypeName(const testing::TestParamInfo<ggml_type>& param) {
  return ggml_type_name(param.param);
}

class KernelOfType : public testing::TestWithParam<ggml_type> {};

TEST_P(KernelOfType, AgreesWithDoublePrecision) {
  const CpuTraits traits = CpuTraits::Load().value();
  const ggml_type type = GetParam();
  const int64_t block = std::max<int64_t>(ggml_blck_size(type), 32);
  size_t misalign = 0;
  for (const int64_t n_in : {block, 3 * block, 5 * block}) {
    const Floats values = RandomFloats(static_cast<size_t>(n_in) * kDifferentRows, 17);
    for (const int64_t n_rows : {1, 3, 17, 36}) {
      misalign = (misalign + 4) % 32;
      const auto n = static_cast<size_t>(n_in);
      Matrix matrix(type, n_in, n_rows, misalign, values);
      const std::vector<Floats> tokens = {RandomFloats(n, 91), RandomFloats(n, 92),
                                          RandomFloats(n, 93)};
      for (const ExpertKernel& kernel : KernelsOf(type)) {
        ExpectAgreement(kernel, matrix, n_in, n_rows, tokens, traits);
      }
    }
  }
}

TEST_P(KernelOfType, ResultDependsOnItsRowAndTokenAlone) {
  const ggml_type type = GetParam();
  const int64_t n_in = 2 * std::max<int64_t>(ggml_blck_size(type), 32);
  constexpr int64_t kRows = 37;
  constexpr size_t kTokens = 35;
  const auto n = static_cast<size_t>(n_in);
  Matrix matrix(type, n_in, kRows, 4, RandomFloats(n * kDifferentRows, 5));
  std::vector<Floats> tokens;
  for (uint32_t t = 0; t < kTokens; ++t) tokens.push_back(RandomFloats(n, 100 + t));
  for (const ExpertKernel& kernel : KernelsOf(type)) {
    SCOPED_TRACE(kernel.name);
    const auto together = Multiply(kernel, matrix, n_in, kRows, tokens);
    // One token and one row at a time; then every count of tokens up to all.
    for (size_t t = 0; t < kTokens; t += 17) {
      const Tokens one(kernel, {tokens[t]});
      for (int64_t r = 0; r < kRows; ++r) {
        float value = 0.0F;
        float* out = &value;
        kernel.multiply(kernel, {.rows = matrix.row(r),
                                 .row_bytes = matrix.row_bytes(),
                                 .n_in = n_in,
                                 .n_rows = 1,
                                 .activations = one.data(),
                                 .out = &out,
                                 .n_tokens = 1,
                                 .next = matrix.row(r) + matrix.row_bytes(),
                                 .next_bytes = matrix.row_bytes()});
        ASSERT_EQ(value, together[t][static_cast<size_t>(r)]) << "row " << r << " token " << t;
      }
    }
    for (const size_t count : {1, 2, 3, 5, 8, 16, 17, 34}) {
      const std::vector<Floats> first(tokens.begin(), tokens.begin() + static_cast<int64_t>(count));
      const auto some = Multiply(kernel, matrix, n_in, kRows, first);
      for (size_t t = 0; t < count; ++t) ASSERT_EQ(some[t], together[t]) << t << " of " << count;
    }
    for (const int64_t split : {1, 2, 3, 5, 15, 16, 33}) {
      const auto upper = Multiply(kernel, matrix, n_in, split, tokens);
      for (size_t t = 0; t < kTokens; ++t) {
        ASSERT_TRUE(std::equal(upper[t].begin(), upper[t].end(), together[t].begin()))
            << "first " << split << " rows, token " << t;
      }
    }
  }
}

TEST_P(KernelOfType, ZerosAndTinyNumbersStayFinite) {
  const ggml_type type = GetParam();
  const int64_t n_in = 2 * std::max<int64_t>(ggml_blck_size(type), 32);
  constexpr int64_t kRows = 5;
  const auto n = static_cast<size_t>(n_in);
  Floats tiny = RandomFloats(n, 3);
  for (float& value : tiny) value *= 1e-38F;
  const std::vector<Floats> tokens = {Floats(n, 0.0F), tiny, RandomFloats(n, 4)};
  for (const Floats& values : {Floats(n * kRows, 0.0F), RandomFloats(n * kRows, 6)}) {
    Matrix matrix(type, n_in, kRows, 12, values);
    for (const ExpertKernel& kernel : KernelsOf(type)) {
      SCOPED_TRACE(kernel.name);
      const auto results = Multiply(kernel, matrix, n_in, kRows, tokens);
      for (size_t t = 0; t < tokens.size(); ++t) {
        for (const float value : results[t]) {
          ASSERT_TRUE(std::isfinite(value));
          ASSERT_TRUE(t != 0 || value == 0.0F) << value;
        }
      }
    }
  }
}

// ggml's functions round NaN or infinity to some integer, and the product would look sound.
TEST_P(KernelOfType, AValueThatIsNoNumberMakesTheProductNone) {
  const ggml_type type = GetParam();
  const int64_t n_in = 2 * std::max<int64_t>(ggml_blck_size(type), 32);
  constexpr int64_t kRows = 5;
  const auto n = static_cast<size_t>(n_in);
  Matrix matrix(type, n_in, kRows, 0, RandomFloats(n * kRows, 6));
  const std::vector<size_t> places = {0, n / 2 - 1, n - 3};
  std::vector<Floats> tokens = {RandomFloats(n, 4)};
  for (const size_t at : places) {
    tokens.push_back(RandomFloats(n, 4));
    tokens.back()[at] = std::nanf("");
  }
  tokens.emplace_back(n, std::nanf(""));
  for (const ExpertKernel& kernel : KernelsOf(type)) {
    if (std::string_view(kernel.name).starts_with("ggml")) continue;
    SCOPED_TRACE(kernel.name);
    const auto results = Multiply(kernel, matrix, n_in, kRows, tokens);
    for (size_t t = 0; t < tokens.size(); ++t) {
      for (const float value : results[t]) EXPECT_EQ(std::isnan(value), t > 0) << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTypes, KernelOfType, testing::ValuesIn(AllTypes()), TypeName);

// Bytes that quantisers hardly write, the largest scales and weights among them: sums within a
// block must not overflow.
TEST(OwnKernels, AnyBytesAreWeights) {
  constexpr int64_t kIn = 256;
  const std::vector<Floats> tokens = {Floats(kIn, 1.0F), Floats(kIn, -1.0F), RandomFloats(kIn, 8)};
  const CpuTraits traits = CpuTraits::Load().value();
  const ggml_fp16_t half = ggml_fp32_to_fp16(0.01F);
  const std::vector<std::pair<ggml_type, std::vector<size_t>>> halves = {
      {GGML_TYPE_Q4_1, {0, 2}},   {GGML_TYPE_Q5_0, {0}},   {GGML_TYPE_Q5_1, {0, 2}},
      {GGML_TYPE_Q2_K, {80, 82}}, {GGML_TYPE_Q3_K, {108}}, {GGML_TYPE_Q4_K, {0, 2}},
      {GGML_TYPE_Q5_K, {0, 2}},   {GGML_TYPE_Q6_K, {208}}, {GGML_TYPE_IQ4_XS, {0}},
      {GGML_TYPE_IQ3_XXS, {0}},   {GGML_TYPE_IQ3_S, {0}},  {GGML_TYPE_IQ2_XXS, {0}},
      {GGML_TYPE_IQ2_XS, {0}},    {GGML_TYPE_IQ2_S, {0}}};
  for (const auto& [type, at] : halves) {
    Matrix rows(type, kIn, 16, 0, Floats(kIn * 16, 0.0F));
    std::memset(rows.data(), 0xff, 16 * rows.row_bytes());
    std::mt19937 engine(29);
    for (size_t i = 0; i < 12 * rows.row_bytes(); ++i) {
      rows.data()[i] = static_cast<std::byte>(engine());
    }
    for (size_t block = 0; block < 16 * rows.row_bytes(); block += ggml_type_size(type)) {
      for (const size_t offset : at) {
        std::memcpy(rows.data() + block + offset, &half, sizeof(half));
      }
    }
    for (const ExpertKernel& kernel : KernelsOf(type)) {
      ExpectAgreement(kernel, rows, kIn, 16, tokens, traits);
    }
  }
}

}  // namespace
}  // namespace moestro
