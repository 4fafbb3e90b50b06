// SPDX-License-Identifier: MIT
#include "memory/layer_values.h"

#include <ggml-cpp.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace moestro {
namespace {

ModelSpec Spec(uint32_t dim_k, uint32_t dim_v) {
  ModelSpec spec;
  spec.layers.assign(
      3, {.mixer = AttentionSpec{.n_head_kv = 2, .head_dim_k = dim_k, .head_dim_v = dim_v}});
  return spec;
}

MemoryShape Shape(uint32_t dim_k, uint32_t dim_v, KvType type) {
  return MemoryShape::Of(Spec(dim_k, dim_v), type).value();
}

TEST(KvCache, TypesAreGgmls) {
  for (const KvTypeInfo& type : kKvTypes) {
    const ggml_type tensor = KvCache::TensorType(type.type);
    EXPECT_EQ(type.name, ggml_type_name(tensor));
    EXPECT_EQ(type.block, ggml_blck_size(tensor));
    EXPECT_EQ(type.block_bytes, ggml_type_size(tensor));
    EXPECT_EQ(InfoOf(type.type).name, type.name);
    EXPECT_EQ(*ParseKvType(type.name), type.type);
  }
}

TEST(KvCache, TakesTheBytesOfItsBlocks) {
  // 64 + 32 values of two heads in 128 cells of three layers.
  EXPECT_EQ(KvCache::BytesFor(Shape(64, 32, KvType::kF16), {.all = 128}), 96U * 2 * 128 * 3 * 2);
  EXPECT_EQ(KvCache::BytesFor(Shape(64, 32, KvType::kQ8), {.all = 128}),
            96U * 2 * 128 * 3 * 34 / 32);
}

TEST(KvCache, HeadsThatAreNoWholeBlocksAreRefusedWithTheirWidths) {
  EXPECT_TRUE(MemoryShape::Of(Spec(64, 32), KvType::kQ8));
  EXPECT_TRUE(MemoryShape::Of(Spec(80, 48), KvType::kF16));
  for (const auto& [dim_k, dim_v] : {std::pair{80U, 64U}, {64U, 80U}}) {  // two heads are 160
    const auto refused = MemoryShape::Of(Spec(dim_k, dim_v), KvType::kQ8);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::kInvalidRequest);
    EXPECT_NE(refused.error().message.find("80"), std::string::npos) << refused.error().message;
  }
}

TEST(KvCache, KeysOfAnIndexerAreWholeBlocksToo) {
  for (const uint32_t dim : {32U, 48U}) {
    ModelSpec spec = Spec(64, 32);
    for (LayerSpec& layer : spec.layers) {
      std::get<AttentionSpec>(layer.mixer).indexer = {.n_head = 2, .head_dim = dim, .top_k = 8};
    }
    EXPECT_TRUE(MemoryShape::Of(spec, KvType::kF16));
    EXPECT_EQ(MemoryShape::Of(spec, KvType::kQ8).has_value(), dim == 32);
  }
}

TEST(KvCache, CellsComeBackAsTheyWereWritten) {
  for (const KvTypeInfo& type : kKvTypes) {
    auto kv = KvCache::Allocate(Shape(64, 32, type.type), {.all = 16});
    ASSERT_TRUE(kv) << kv.error().message;
    std::byte next{1};
    const auto bytes_of = [&](KvCache::KvTensor part) {
      std::vector<std::byte> bytes(2 * kv->cell_bytes(1, part));
      for (std::byte& b : bytes) b = next = static_cast<std::byte>(std::to_integer<int>(next) + 7);
      return bytes;
    };
    const std::vector<std::byte> keys = bytes_of(KvCache::KvTensor::kKeys);
    const std::vector<std::byte> values = bytes_of(KvCache::KvTensor::kValues);
    ASSERT_TRUE(kv->Write(1, KvCache::KvTensor::kKeys, 14, keys));
    ASSERT_TRUE(kv->Write(1, KvCache::KvTensor::kValues, 0, values));
    std::vector<std::byte> read(keys.size());
    ASSERT_TRUE(kv->Read(1, KvCache::KvTensor::kKeys, 14, read));
    EXPECT_EQ(read, keys) << type.name;  // the values behind the last cell did not touch it
    EXPECT_EQ(kv->layer(1).v[0], values[0]);
  }
}

// Drivers limit a buffer, often to a gibibyte; keys and values of long contexts take more.
TEST(KvCache, PartsThatOneBufferDoesNotHoldLieInSeveral) {
  const MemoryShape shape = Shape(64, 32, KvType::kF16);
  const uint64_t part = 64 * 2 * 2 * 16;  // keys of a layer: values are half of them
  auto kv = KvCache::Allocate(shape, {.all = 16}, nullptr, 2 * part);
  ASSERT_TRUE(kv) << kv.error().message;
  using Part = KvCache::KvTensor;
  const auto bytes_of = [&](uint32_t layer, Part of) {
    const auto mark = static_cast<std::byte>(2 * layer + (of == Part::kKeys ? 1 : 2));
    return std::vector<std::byte>(16 * kv->cell_bytes(layer, of), mark);
  };
  for (uint32_t l = 0; l < kv->layers(); ++l) {
    for (const Part of : {Part::kKeys, Part::kValues}) {
      ASSERT_TRUE(kv->Write(l, of, 0, bytes_of(l, of)));
    }
  }
  ggml_context_ptr ctx(ggml_init(
      {.mem_size = 16 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
  for (uint32_t l = 0; l < kv->layers(); ++l) {
    for (const Part of : {Part::kKeys, Part::kValues}) {
      std::vector<std::byte> read(16 * kv->cell_bytes(l, of));
      ASSERT_TRUE(kv->Read(l, of, 0, read));
      EXPECT_EQ(read, bytes_of(l, of)) << l;
    }
    EXPECT_EQ(kv->K(ctx.get(), l)->data, kv->layer(l).k);
    EXPECT_EQ(kv->V(ctx.get(), l)->data, kv->layer(l).v);
  }
  // A part that is larger than the limit has a buffer of its own.
  EXPECT_TRUE(KvCache::Allocate(shape, {.all = 16}, nullptr, 1));
}

}  // namespace
}  // namespace moestro
