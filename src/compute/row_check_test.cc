// SPDX-License-Identifier: MIT
// A row's product has the same bits alone and among any number of others, with whichever of ggml's
// plug-ins runs this (`make test-variants` takes one after the other).
#include "compute/row_check.h"

#include <ggml-cpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "compute/backend_buffer.h"
#include "compute/backend_calls.h"
#include "compute/cpu_device.h"
#include "compute/expert_kernel.h"
#include "compute/product_node.h"
#include "compute/weight_set.h"

namespace moestro {
namespace {

// Products of weights that are no numbers, or all zeros, would compare equal or differ for nothing.
TEST(MadeUpWeights, AreSensibleNumbersInEveryType) {
  constexpr int64_t kWidth = 512;
  constexpr int64_t kRows = 3;
  std::vector<float> values(kWidth * kRows);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  for (int t = 0; t < GGML_TYPE_COUNT; ++t) {
    const auto type = static_cast<ggml_type>(t);
    const ggml_type_traits* const traits = ggml_get_type_traits(type);
    if (!ggml_is_quantized(type) || traits->type_size == 0 || traits->to_float == nullptr) continue;
    if (type == GGML_TYPE_Q8_1 || type == GGML_TYPE_Q8_K) continue;  // of activations
    const size_t row_bytes = ggml_row_size(type, kWidth);
    std::vector<std::byte> rows(kRows * row_bytes + 1, std::byte{0x5a});
    MakeUpWeights(type, values, kWidth, std::span(rows).first(rows.size() - 1));
    EXPECT_EQ(rows.back(), std::byte{0x5a}) << "written behind the rows";
    for (int64_t row = 0; row < kRows; ++row) {
      std::vector<float> read(kWidth);
      traits->to_float(&rows[static_cast<size_t>(row) * row_bytes], read.data(), kWidth);
      EXPECT_TRUE(std::ranges::all_of(read, [](float v) { return std::abs(v) < 10.0F; }))
          << traits->type_name;
      EXPECT_GT(std::ranges::count_if(read, [](float v) { return v != 0.0F; }), kWidth / 4)
          << traits->type_name;
    }
  }
}

constexpr uint32_t kRows[] = {2, 3, 6, 7, 8, 9, 16, 17, 31, 32, 33, 64, 65, 100};
constexpr uint32_t kMostChecked = 100;

// Types that ggml multiplies and that matrices of files may have.
std::vector<ggml_type> TypesHere() {
  const auto traits = CpuTraits::Load();
  std::vector<ggml_type> types;
  for (int t = 0; t < GGML_TYPE_COUNT; ++t) {
    const auto type = static_cast<ggml_type>(t);
    const bool is_weight = ggml_is_quantized(type) || type == GGML_TYPE_F32 ||
                           type == GGML_TYPE_F16 || type == GGML_TYPE_BF16;
    const bool is_known = ggml_type_size(type) > 0 && ggml_blck_size(type) > 0;
    if (!is_weight || !is_known || type == GGML_TYPE_Q8_1 || type == GGML_TYPE_Q8_K) continue;
    if (traits->Of(type) != nullptr && traits->Of(type)->vec_dot != nullptr) types.push_back(type);
  }
  return types;
}

std::vector<float> NormalRow(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}

std::vector<std::byte> Weights(ggml_type type, int64_t n_in, int64_t n_out) {
  std::vector<std::byte> bytes(ggml_row_size(type, n_in) * static_cast<size_t>(n_out));
  MakeUpWeights(type, NormalRow(static_cast<size_t>(n_in * n_out), 3), n_in, bytes);
  return bytes;
}

// kMostChecked rows, made once for each width: hundreds of matrices are multiplied with them.
const std::vector<float>& Activations(int64_t n_in) {
  static std::map<int64_t, std::vector<float>> made;
  std::vector<float>& rows = made[n_in];
  if (rows.empty()) rows = NormalRow(kMostChecked * static_cast<size_t>(n_in), 7);
  return rows;
}

using MakeProduct = std::function<ggml_tensor*(ggml_context*, ggml_tensor* x)>;

// Products of rows of activations, all of them normal numbers.
class Products {
 public:
  Products(CpuDevice& device, int64_t n_in, MakeProduct make)
      : device_(device), n_in_(n_in), make_(std::move(make)) {}

  // The first number of rows among which a row's product differs from the product alone; 0: none.
  uint32_t FirstThatDiffers() const {
    const std::vector<float>& x = Activations(n_in_);
    std::vector<float> alone;
    for (uint32_t row = 0; row < kMostChecked; ++row) alone.append_range(Multiply(x, row, 1));
    for (const uint32_t rows : kRows) {
      const std::vector<float> together = Multiply(x, 0, rows);
      EXPECT_EQ(together.size() * kMostChecked, alone.size() * rows);
      if (std::memcmp(together.data(), alone.data(), together.size() * sizeof(float)) != 0) {
        return rows;
      }
    }
    return 0;
  }

 private:
  std::vector<float> Multiply(const std::vector<float>& x, size_t first, size_t n) const {
    const auto width = static_cast<size_t>(n_in_);
    GraphArena arena(device_.backend(), 16);
    ggml_context* ctx = arena.Begin();
    auto buffer = BackendBuffer::OnHost(n * width * sizeof(float));
    EXPECT_TRUE(buffer.has_value());
    ggml_tensor* in = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, n_in_, static_cast<int64_t>(n));
    buffer->Place(in, 0);
    std::memcpy(buffer->data(), x.data() + first * width, n * width * sizeof(float));
    ggml_tensor* product = make_(ctx, in);
    ggml_set_output(product->view_src != nullptr ? product->view_src : product);
    ggml_build_forward_expand(arena.graph(), product);
    EXPECT_TRUE(arena.Run().has_value());
    const auto* values = static_cast<const float*>(product->data);
    return {values, values + ggml_nelements(product)};
  }

  CpuDevice& device_;
  int64_t n_in_;
  MakeProduct make_;
};

// How a matrix of the model comes to its layout.
enum class Use : uint8_t { kOnlyMultiplied, kAlsoLookedUp, kAsInFile };

struct Shape {
  ggml_type type;
  int64_t n_in;
  int64_t n_out;
};

uint32_t FirstThatDiffers(CpuDevice& device, const Shape& m, Use use) {
  WeightSet set = WeightSet::Plan(device,
                                  {{.name = "w",
                                    .type = m.type,
                                    .ne = {m.n_in, m.n_out, 1, 1},
                                    .only_multiplied = use != Use::kAlsoLookedUp}},
                                  {.allow_repack = use != Use::kAsInFile});
  EXPECT_TRUE(set.Allocate());
  EXPECT_TRUE(set.Store(0, 0, Weights(m.type, m.n_in, m.n_out)));
  return Products(
             device, m.n_in,
             [&](ggml_context* ctx, ggml_tensor* x) { return MultiplyNode(ctx, set.tensor(0), x); })
      .FirstThatDiffers();
}

// As a whole run multiplies them: widths that are whole blocks of all types, and others; as many
// rows as a gate of one, a router, a projection and an odd vocabulary have.
TEST(RowCheck, EveryMatrixMultipliesARowAmongOthersAsAlone) {
  for (const uint32_t threads : {1U, 2U}) {
    auto device = CpuDevice::Open(threads);
    ASSERT_TRUE(device.has_value());
    for (const ggml_type type : TypesHere()) {
      for (const int64_t n_in : {512, 288}) {
        if (n_in % ggml_blck_size(type) != 0) continue;
        for (const int64_t n_out : {1, 64, 101}) {
          for (const Use use : {Use::kOnlyMultiplied, Use::kAlsoLookedUp, Use::kAsInFile}) {
            EXPECT_EQ(FirstThatDiffers(*device, {type, n_in, n_out}, use), 0U)
                << ggml_type_name(type) << " [" << n_in << ", " << n_out << "], use "
                << static_cast<int>(use) << ", " << threads << " threads";
          }
        }
      }
    }
  }
}

// ggml's own product with a matrix in one of its layouts.
uint32_t FirstThatDiffers(CpuDevice& device, const RowCheck::Matrix& m) {
  const ggml_context_ptr context(
      ggml_init({.mem_size = 2 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
  ggml_tensor* weight = ggml_new_tensor_2d(context.get(), m.type, m.n_in, m.n_out);
  const auto buffer = AllocateTensors(context.get(), m.where);
  EXPECT_TRUE(buffer.has_value());
  EXPECT_TRUE(CopyTo(weight, 0, Weights(m.type, m.n_in, m.n_out)));
  return Products(device, m.n_in,
                  [&](ggml_context* ctx, ggml_tensor* x) { return ggml_mul_mat(ctx, weight, x); })
      .FirstThatDiffers();
}

// The trial agrees with products of other weights, activations and numbers of rows.
TEST(RowCheck, ATrialFindsWhatDiffers) {
  auto device = CpuDevice::Open(2);
  ASSERT_TRUE(device.has_value());
  std::vector<ggml_backend_buffer_type_t> layouts = device->repacking_buffer_types();
  layouts.push_back(ggml_backend_get_default_buffer_type(device->backend()));
  RowCheck check(*device);
  std::string found;
  for (const ggml_type type : TypesHere()) {
    for (ggml_backend_buffer_type_t where : layouts) {
      const RowCheck::Matrix matrix{.type = type, .n_in = 512, .n_out = 320, .where = where};
      if (!device->CanMultiply(type, 512, 320, where)) {
        EXPECT_FALSE(check.Passes(matrix));
        continue;
      }
      const uint32_t differs = FirstThatDiffers(*device, matrix);
      const bool can_be_tried = !ggml_quantize_requires_imatrix(type);
      EXPECT_EQ(check.Passes(matrix), differs == 0 && can_be_tried)
          << ggml_type_name(type) << " in " << ggml_backend_buft_name(where);
      if (differs == 0) continue;
      found += std::string(ggml_type_name(type)) + " in " + ggml_backend_buft_name(where) +
               " from " + std::to_string(differs) + "; ";
    }
  }
  RecordProperty("rows_depend_on_each_other", found);
}

// Of matrices as small as a test's, whose kernels read what earlier products left in scratch
// memory: the first engine of a process and later ones choose alike.
TEST(RowCheck, TheSameAnswerEachTime) {
  auto device = CpuDevice::Open(2);
  ASSERT_TRUE(device.has_value());
  std::vector<ggml_backend_buffer_type_t> layouts = device->repacking_buffer_types();
  layouts.push_back(ggml_backend_get_default_buffer_type(device->backend()));
  std::vector<bool> first;
  for (int time = 0; time < 3; ++time) {
    RowCheck check(*device);
    std::vector<bool> answers;
    for (const ggml_type type : TypesHere()) {
      for (ggml_backend_buffer_type_t where : layouts) {
        for (const int64_t n_in : {ggml_blck_size(type), 2 * ggml_blck_size(type)}) {
          answers.push_back(
              check.Passes({.type = type, .n_in = n_in, .n_out = 64, .where = where}));
        }
      }
    }
    if (time == 0) first = answers;
    EXPECT_EQ(answers, first);
  }
}

// Of experts, by ggml's dot products and by our kernels.
TEST(RowCheck, EveryExpertKernelMultipliesARowAmongOthersAsAlone) {
  constexpr int64_t kIn = 512;
  constexpr int64_t kOut = 37;
  const std::vector<float> x = NormalRow(kMostChecked * size_t{kIn}, 7);
  for (const ggml_type type : TypesHere()) {
    const std::vector<std::byte> weights = Weights(type, kIn, kOut);
    for (const bool allow_own : {false, true}) {
      const auto kernel = FindExpertKernel(type, allow_own);
      ASSERT_TRUE(kernel.has_value()) << ggml_type_name(type);
      const size_t bytes = kernel->activation_bytes(kIn);
      struct alignas(64) AlignedBytes {
        std::byte bytes[64];
      };
      std::vector<AlignedBytes> quantised(kMostChecked * (bytes + 63) / 64 + 1);
      auto* at = quantised.data()->bytes;
      std::vector<const std::byte*> rows;
      for (uint32_t r = 0; r < kMostChecked; ++r) {
        kernel->quantise(*kernel, x.data() + r * size_t{kIn}, at + r * bytes, kIn);
        rows.push_back(at + r * bytes);
      }
      const auto multiply = [&](uint32_t first, uint32_t n) {
        std::vector<float> values(n * size_t{kOut});
        std::vector<float*> out;
        for (uint32_t i = 0; i < n; ++i) out.push_back(values.data() + i * size_t{kOut});
        kernel->multiply(*kernel, {.rows = weights.data(),
                                   .row_bytes = ggml_row_size(type, kIn),
                                   .n_in = kIn,
                                   .n_rows = kOut,
                                   .activations = rows.data() + first,
                                   .out = out.data(),
                                   .n_tokens = n});
        return values;
      };
      std::vector<float> alone;
      for (uint32_t r = 0; r < kMostChecked; ++r) alone.append_range(multiply(r, 1));
      for (const uint32_t n : kRows) {
        const std::vector<float> together = multiply(0, n);
        EXPECT_EQ(std::memcmp(together.data(), alone.data(), together.size() * sizeof(float)), 0)
            << ggml_type_name(type) << " by " << kernel->name << " among " << n;
      }
    }
  }
}

}  // namespace
}  // namespace moestro
