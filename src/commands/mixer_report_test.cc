// SPDX-License-Identifier: MIT
#include "commands/mixer_report.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <variant>

namespace moestro {
namespace {

// MiniMax-M3: three layers that attend to all positions, and 57 whose heads choose blocks.
ModelSpec BlocksOfHeads() {
  ModelSpec spec;
  const AttentionSpec plain{.n_head = 64, .n_head_kv = 4, .head_dim_k = 128, .head_dim_v = 128};
  AttentionSpec choosing = plain;
  choosing.indexer = IndexerSpec{.n_head = 4,
                                 .head_dim = 128,
                                 .top_k = 2048,
                                 .n_pool = 128,
                                 .n_last_pools = 1,
                                 .score = PoolScore::kBestPosition};
  for (uint32_t l = 0; l < 60; ++l) spec.layers.push_back({.mixer = l < 3 ? plain : choosing});
  return spec;
}

// DeepSeek-V4: a window alone, and then pools of 4 and of 128 in turn.
ModelSpec Pools() {
  ModelSpec spec;
  for (uint32_t l = 0; l < 43; ++l) {
    PooledAttentionSpec pooled{.n_head = 64, .head_dim = 512, .window = 128};
    if (l >= 2) pooled.n_pool = l % 2 == 0 ? 4 : 128;
    pooled.overlaps = pooled.n_pool == 4;
    if (pooled.overlaps) pooled.indexer = IndexerSpec{.n_head = 64, .top_k = 512};
    spec.layers.push_back({.mixer = pooled});
  }
  return spec;
}

double NumberOf(JsonView mixer, const char* key) { return *mixer.Find(key)->number(); }

TEST(MixerReport, BlocksThatHeadsChoose) {
  EXPECT_EQ(MixersText(BlocksOfHeads()),
            "; 3 layers (0 to 2): 64 heads, 4 for keys and values, of 128; 57 layers (3 to 59): "
            "64 heads, 4 for keys and values, of 128, over 16 blocks of 128 positions that 4 "
            "indexer heads choose each, for the heads that share keys, the last 1 always");
  const Json json = MixersAsJson(BlocksOfHeads());
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(NumberOf(*json.At(0), "chosen"), 0.0);
  const JsonView choosing = *json.At(1);
  EXPECT_EQ(choosing.Find("layers")->size(), 57U);
  EXPECT_EQ(choosing.Find("layers")->At(0)->number(), 3.0);
  EXPECT_EQ(NumberOf(choosing, "pool"), 128.0);
  EXPECT_EQ(NumberOf(choosing, "chosen"), 16.0);
  EXPECT_EQ(NumberOf(choosing, "always"), 1.0);
  EXPECT_EQ(NumberOf(choosing, "choices"), 4.0);
}

TEST(MixerReport, PoolsAndWindows) {
  EXPECT_EQ(MixersText(Pools()),
            "; 2 layers (0 to 1): 64 heads that share a key of 512, over 128 positions; 21 layers "
            "(every 2nd from 2 to 42): 64 heads that share a key of 512, over 128 positions and "
            "pools of 4, 512 of which 64 indexer heads choose; 20 layers (every 2nd from 3 to 41): "
            "64 heads that share a key of 512, over 128 positions and pools of 128");
  const Json json = MixersAsJson(Pools());
  ASSERT_EQ(json.size(), 3U);
  for (size_t i = 0; i < json.size(); ++i) EXPECT_EQ(NumberOf(*json.At(i), "window"), 128.0);
  EXPECT_EQ(NumberOf(*json.At(1), "pool"), 4.0);
  EXPECT_EQ(NumberOf(*json.At(1), "chosen"), 512.0);
  EXPECT_EQ(NumberOf(*json.At(2), "pool"), 128.0);
  EXPECT_EQ(NumberOf(*json.At(2), "chosen"), 0.0);
}

TEST(MixerReport, PositionsThatAnotherLayerChose) {
  ModelSpec spec;
  LatentAttentionSpec latent{.n_head = 8, .n_latent = 512, .n_turned = 64};
  latent.indexer = IndexerSpec{.n_head = 32, .top_k = 2048};
  spec.layers.push_back({.mixer = latent});
  latent.indexer->is_shared = true;
  spec.layers.push_back({.mixer = latent});
  EXPECT_EQ(MixersText(spec),
            "; 1 layer (0): 8 heads that share a latent of 512 and 64 turned values, over 2048 "
            "positions that 32 indexer heads choose; 1 layer (1): 8 heads that share a latent of "
            "512 and 64 turned values, over 2048 positions that an earlier layer chose");
}

// Layers in no even step have no numbers; an indexer that is idle chooses nothing.
TEST(MixerReport, OneKindStandsAlone) {
  ModelSpec spec = BlocksOfHeads();
  spec.layers.resize(1);
  EXPECT_EQ(MixersText(spec), ", 64 heads, 4 for keys and values, of 128");
  spec = BlocksOfHeads();
  std::swap(spec.layers[0], spec.layers[9]);
  EXPECT_TRUE(MixersText(spec).starts_with("; 57 layers: ")) << MixersText(spec);
  EXPECT_TRUE(MixersText(spec).contains("; 3 layers: ")) << MixersText(spec);
  for (LayerSpec& layer : spec.layers) {
    auto& attention = std::get<AttentionSpec>(layer.mixer);
    if (attention.indexer) attention.indexer->is_idle = true;
  }
  EXPECT_FALSE(MixersText(spec).contains("blocks"));
}

}  // namespace
}  // namespace moestro
