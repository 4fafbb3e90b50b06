// SPDX-License-Identifier: MIT
#include "compute/row_check.h"

#include <ggml-cpp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "compute/backend_buffer.h"
#include "compute/backend_calls.h"

namespace moestro {
namespace {

// Any bytes are weights of such a type as long as the scale is a sensible number: a half at the
// start of a block, or in IQ1_M the top nibbles of the last four words.
void FillWithRandomBlocks(ggml_type type, std::span<std::byte> rows) {
  std::mt19937 random(23);
  for (std::byte& byte : rows) byte = static_cast<std::byte>(random());
  const size_t block = ggml_type_size(type);
  for (size_t at = 0; at + block <= rows.size(); at += block) {
    if (type == GGML_TYPE_IQ1_M) {
      std::byte& top = rows[at + block - 1];
      top = (top & std::byte{0x0f}) | std::byte{0x20};
    } else {
      const ggml_fp16_t scale = ggml_fp32_to_fp16(0.01F);
      std::memcpy(&rows[at], &scale, sizeof(scale));
    }
  }
}

}  // namespace

bool IsSlowToQuantise(ggml_type type) {
  return type == GGML_TYPE_IQ1_S || type == GGML_TYPE_IQ1_M || type == GGML_TYPE_IQ2_XXS ||
         type == GGML_TYPE_IQ2_XS || type == GGML_TYPE_IQ2_S;
}

void MakeUpWeights(ggml_type type, std::span<const float> values, int64_t n_in,
                   std::span<std::byte> rows) {
  if (IsSlowToQuantise(type)) return FillWithRandomBlocks(type, rows);
  const std::vector<float> equal(static_cast<size_t>(n_in), 1.0F);
  ggml_quantize_chunk(type, values.data(), rows.data(), 0,
                      static_cast<int64_t>(values.size()) / n_in, n_in, equal.data());
}

namespace {

// Numbers of rows around those at which kernels change.
constexpr std::array<uint32_t, 14> kCounts = {2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 32, 33, 64, 65};
constexpr uint32_t kMostRows = 65;
constexpr size_t kMostNodes = 256;

// Rows of a smaller matrix that show as much: the last tile of a kernel is filled as in the whole
// matrix.
constexpr int64_t kTiles = 64;
int64_t FewerRows(int64_t n_out) { return n_out < 2 * kTiles ? n_out : kTiles + n_out % kTiles; }

// Floats from -2 to 2.
std::vector<float> MadeUpFloats(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(n);
  for (float& v : values) {
    v = static_cast<float>(static_cast<int32_t>(random())) / static_cast<float>(1U << 30);
  }
  return values;
}

// Weights of a matrix. Rows repeat after kDifferent, since some types take long to quantise.
std::vector<std::byte> RepeatedWeights(ggml_type type, int64_t n_in, int64_t n_out) {
  constexpr int64_t kDifferent = 16;
  const int64_t n = std::min(n_out, kDifferent);
  const std::vector<float> values = MadeUpFloats(static_cast<size_t>(n_in * n), 1);
  const size_t row_bytes = ggml_row_size(type, n_in);
  std::vector<std::byte> bytes(row_bytes * static_cast<size_t>(n_out));
  const size_t made = row_bytes * static_cast<size_t>(n);
  MakeUpWeights(type, values, n_in, std::span(bytes).first(made));
  for (size_t at = made; at < bytes.size(); at += made) {
    std::memcpy(bytes.data() + at, bytes.data(), std::min(made, bytes.size() - at));
  }
  return bytes;
}

// A matrix of ggml's, and rows to multiply with.
class RowTrial {
 public:
  static Result<RowTrial> Create(const CpuDevice& device, const RowCheck::Matrix& m) {
    RowTrial trial(device.backend());
    trial.context_.reset(ggml_init(
        {.mem_size = 2 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
    trial.weight_ = ggml_new_tensor_2d(trial.context_.get(), m.type, m.n_in, m.n_out);
    TRY(trial.buffer_, AllocateTensors(trial.context_.get(), m.where));
    ggml_backend_buffer_set_usage(trial.buffer_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    TRY_STATUS(CopyTo(trial.weight_, 0, RepeatedWeights(m.type, m.n_in, m.n_out)));
    const std::vector<float> x = MadeUpFloats(kMostRows * static_cast<size_t>(m.n_in), 2);
    TRY(trial.x_, BackendBuffer::OnHost(x.size() * sizeof(float)));
    std::memcpy(trial.x_.data(), x.data(), x.size() * sizeof(float));
    return trial;
  }

  // Whether products of kCounts rows together equal the products of each row alone. All are in one
  // graph, since starting the threads costs more than these products.
  Result<bool> Compare() {
    ggml_context* ctx = arena_.Begin();
    std::vector<const ggml_tensor*> alone;
    std::vector<const ggml_tensor*> together;
    for (uint32_t row = 0; row < kMostRows; ++row) alone.push_back(Product(ctx, row, 1));
    for (const uint32_t rows : kCounts) together.push_back(Product(ctx, 0, rows));
    TRY_STATUS(arena_.Run());
    const size_t row_bytes = static_cast<size_t>(weight_->ne[1]) * sizeof(float);
    for (const ggml_tensor* product : together) {
      for (size_t row = 0; row < static_cast<size_t>(product->ne[1]); ++row) {
        const auto* at = static_cast<const std::byte*>(product->data) + row * row_bytes;
        if (std::memcmp(at, alone[row]->data, row_bytes) != 0) return false;
      }
    }
    return true;
  }

 private:
  explicit RowTrial(ggml_backend_t backend) : arena_(backend, kMostNodes) {}

  ggml_tensor* Product(ggml_context* ctx, uint32_t first, uint32_t rows) {
    ggml_tensor* x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, weight_->ne[0], rows);
    x_.Place(x, first * x->nb[1]);
    ggml_tensor* product = ggml_mul_mat(ctx, weight_, x);
    ggml_set_output(product);
    ggml_build_forward_expand(arena_.graph(), product);
    return product;
  }

  ggml_context_ptr context_;
  BufferPtr buffer_;
  ggml_tensor* weight_ = nullptr;
  BackendBuffer x_;
  GraphArena arena_;
};

}  // namespace

bool RowCheck::Passes(const Matrix& matrix) {
  const int64_t n_out = FewerRows(matrix.n_out);
  const auto key = std::tuple(matrix.type, matrix.n_in, n_out, matrix.where);
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  const Result<bool> tried = Caught(
      [&]() -> Result<bool> {
        return Try(
            {.type = matrix.type, .n_in = matrix.n_in, .n_out = n_out, .where = matrix.where});
      },
      [](std::string_view why) { return Fail(Errc::kNoMemory, "cannot try a product: {}", why); });
  return known_[key] = tried.value_or(false);
}

Result<bool> RowCheck::Try(const Matrix& m) const {
  if (ggml_quantize_requires_imatrix(m.type)) return false;
  if (!device_.CanMultiply(m.type, m.n_in, m.n_out, m.where)) return false;
  TRY(RowTrial trial, RowTrial::Create(device_, m));
  // Compares twice: a kernel may read scratch memory without writing it, and at first this memory
  // is all zeros. ggml's AMX kernel does so with matrices of one block of Q8_0 and 32 rows or more.
  TRY(const bool first, trial.Compare());
  return first ? trial.Compare() : Result<bool>(false);
}

}  // namespace moestro
