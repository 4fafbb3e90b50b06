// SPDX-License-Identifier: MIT
#include "forward/dense/head_node.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/model_spec.h"
#include "forward/dense/blocks.h"
#include "memory/layer_values.h"

namespace moestro {
namespace {

constexpr int64_t kHeadRows = 5;
constexpr int64_t kHeadCells = 11;
const RowNorm kHeadNorm{.kernel = RowKernel::ForThisMachine(), .eps = 1e-6F};

struct HeadCase {
  RopePairs pairs;
  uint32_t n_dims;  // turned; 0: none
  bool has_norms;
  KvType type;
};

AttentionSpec SpecOf(const HeadCase& c) {
  AttentionSpec spec{.n_head = 6, .n_head_kv = 2, .head_dim_k = 64, .head_dim_v = 32};
  spec.form.rope_pairs = c.pairs;
  if (c.n_dims > 0) spec.rope = RopeSpec{.n_dims = c.n_dims, .freq_base = 1e4F};
  return spec;
}

struct Prepared {
  std::vector<float> q;
  std::vector<float> k;  // all cells, as floats
  std::vector<float> v;
  bool operator==(const Prepared&) const = default;
};

std::vector<float> CellsAsFloats(KvType type, const ggml_tensor* cache) {
  std::vector<float> values(static_cast<size_t>(ggml_nelements(cache)));
  FromCells(type, {static_cast<const std::byte*>(cache->data), ggml_nbytes(cache)}, values);
  return values;
}

class HeadNodeTest : public testing::TestWithParam<HeadCase> {
 protected:
  HeadNodeTest() {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (auto* values : {&q_, &k_, &v_, &q_norm_, &k_norm_}) {
      values->resize(size_t{kHeadRows} * 6 * 64);
      for (float& x : *values) x = normal(random);
    }
  }

  // Rows [first, first + rows) of the same values and positions, by the node or by ggml's nodes.
  Prepared Run(bool in_one_node, uint32_t threads, int64_t first, int64_t rows) {
    const HeadCase c = GetParam();
    const AttentionSpec spec = SpecOf(c);
    CpuDevice device = *CpuDevice::Open(threads);
    auto heads = *HeadNode::Create(device, spec, c.type, kHeadNorm, nullptr, kHeadRows);
    EXPECT_NE(heads, nullptr);
    std::vector<int32_t> positions;
    for (int64_t r = 0; r < rows; ++r) positions.push_back(static_cast<int32_t>(first + r) * 7);
    EXPECT_TRUE(heads->SetPositions(positions));

    GraphArena arena(device.backend(), 64);
    ggml_context* ctx = arena.Begin();
    auto buffer = *BackendBuffer::OnHost(1 << 20);
    uint64_t at = 0;
    const auto place = [&](ggml_tensor* t, const void* from) {
      buffer.Place(t, at);
      if (from != nullptr) std::memcpy(t->data, from, ggml_nbytes(t));
      if (from == nullptr) std::memset(t->data, 0, ggml_nbytes(t));
      at += (ggml_nbytes(t) + 63) / 64 * 64;
      return t;
    };
    const auto floats = [&](int64_t a, int64_t b, int64_t n, const std::vector<float>& from) {
      const float* begin = from.data() + (n > 1 || b > 1 ? first * a * b : 0);
      return place(ggml_new_tensor_3d(ctx, GGML_TYPE_F32, a, b, n), begin);
    };
    std::vector<int64_t> to_cells;
    for (int64_t r = 0; r < rows; ++r) to_cells.push_back((first + r) * 2 + 1);
    HeadNode::Inputs in{
        .q = floats(64, 6, rows, q_),
        .k = floats(64, 2, rows, k_),
        .v = ggml_reshape_2d(ctx, floats(32, 2, rows, v_), 64, rows),
        .k_cache =
            place(ggml_new_tensor_2d(ctx, KvCache::TensorType(c.type), spec.n_embd_k(), kHeadCells),
                  nullptr),
        .v_cache =
            place(ggml_new_tensor_2d(ctx, KvCache::TensorType(c.type), spec.n_embd_v(), kHeadCells),
                  nullptr),
        .cells = place(ggml_new_tensor_1d(ctx, GGML_TYPE_I64, rows), to_cells.data())};
    if (c.has_norms) {
      in.q_norm = place(ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 64), q_norm_.data());
      in.k_norm = place(ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 64), k_norm_.data());
    }
    ggml_tensor* q = nullptr;
    if (in_one_node) {
      q = heads->Node(ctx, in);
    } else {
      ggml_tensor* positions_in =
          place(ggml_new_tensor_1d(ctx, GGML_TYPE_I32, rows), positions.data());
      const auto prepare = [&](ggml_tensor* x, ggml_tensor* norm) {
        if (norm != nullptr) x = RmsNorm(ctx, x, norm, nullptr, kHeadNorm.eps);
        if (!spec.rope) return x;
        return Turned(ctx, x, positions_in, *spec.rope, c.pairs, nullptr);
      };
      q = prepare(in.q, in.q_norm);
      ggml_tensor* k = prepare(in.k, in.k_norm);
      ggml_build_forward_expand(
          arena.graph(),
          ggml_set_rows(ctx, in.k_cache, ggml_reshape_2d(ctx, k, 128, rows), in.cells));
      ggml_build_forward_expand(arena.graph(), ggml_set_rows(ctx, in.v_cache, in.v, in.cells));
    }
    if (q->data == nullptr) place(q, nullptr);
    ggml_build_forward_expand(arena.graph(), q);
    EXPECT_TRUE(arena.Run());
    Prepared prepared{.q = std::vector<float>(static_cast<size_t>(ggml_nelements(q))),
                      .k = CellsAsFloats(c.type, in.k_cache),
                      .v = CellsAsFloats(c.type, in.v_cache)};
    std::memcpy(prepared.q.data(), q->data, ggml_nbytes(q));
    return prepared;
  }

 private:
  std::vector<float> q_, k_, v_, q_norm_, k_norm_;
};

// Both norm and turn in F32; a cell rounds to its type, where the last bit may fall either way: of
// halves 2^-11 of values up to 4 or so, of 8 bits a 127th of a block's largest.
TEST_P(HeadNodeTest, GivesWhatGgmlsNodesGive) {
  const Prepared one = Run(true, 2, 0, kHeadRows);
  const Prepared many = Run(false, 2, 0, kHeadRows);
  ASSERT_EQ(one.q.size(), many.q.size());
  for (size_t i = 0; i < one.q.size(); ++i) ASSERT_NEAR(one.q[i], many.q[i], 1e-5);
  const double most = GetParam().type == KvType::kQ8    ? 0.08
                      : GetParam().type == KvType::kF16 ? 8.0 / 2048
                                                        : 1e-5;
  for (size_t i = 0; i < one.k.size(); ++i) ASSERT_NEAR(one.k[i], many.k[i], most) << i;
  EXPECT_EQ(one.v, many.v);
}

TEST_P(HeadNodeTest, ARowHasTheSameBitsAloneAndOnAnyNumberOfThreads) {
  const Prepared all = Run(true, 2, 0, kHeadRows);
  EXPECT_EQ(Run(true, 1, 0, kHeadRows), all);
  EXPECT_EQ(Run(true, 3, 0, kHeadRows), all);
  for (int64_t row = 0; row < kHeadRows; ++row) {
    const Prepared alone = Run(true, 3, row, 1);
    const auto begin = all.q.begin() + row * 6 * 64;
    EXPECT_EQ(alone.q, std::vector<float>(begin, begin + ptrdiff_t{6} * 64));
    const auto cell = (row * 2 + 1) * 128;
    EXPECT_TRUE(
        std::equal(alone.k.begin() + cell, alone.k.begin() + cell + 128, all.k.begin() + cell));
  }
}

INSTANTIATE_TEST_SUITE_P(, HeadNodeTest,
                         testing::Values(HeadCase{RopePairs::kHalves, 64, true, KvType::kF16},
                                         HeadCase{RopePairs::kHalves, 40, false, KvType::kF32},
                                         HeadCase{RopePairs::kAdjacent, 64, false, KvType::kQ8},
                                         HeadCase{RopePairs::kAdjacent, 16, true, KvType::kF16},
                                         HeadCase{RopePairs::kHalves, 0, true, KvType::kF32}),
                         [](const auto& test) { return "Case" + std::to_string(test.index); });

// Blocks of 8 bits hold 32 values: heads of 48 do not end with one.
TEST(HeadNode, IsNotThereForHeadsThatShareABlock) {
  CpuDevice device = *CpuDevice::Open(1);
  AttentionSpec spec{.n_head = 2, .n_head_kv = 2, .head_dim_k = 48, .head_dim_v = 48};
  EXPECT_EQ(*HeadNode::Create(device, spec, KvType::kQ8, kHeadNorm, nullptr, 1), nullptr);
  EXPECT_NE(*HeadNode::Create(device, spec, KvType::kF16, kHeadNorm, nullptr, 1), nullptr);
}

}  // namespace
}  // namespace moestro
