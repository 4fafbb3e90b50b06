// SPDX-License-Identifier: MIT
// Particularities of families: each, left out alone, changes logits by more than what passes beside
// libllama, so that no test of parity could miss it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/append.h"
#include "model/families/families.h"
#include "model/model_file.h"
#include "native/native_engine.h"
#include "tests/support/other_weights_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kSwitchVocab = 512;
constexpr uint32_t kSwitchText = 30;  // tokens

// Share of the logits that a particularity changes at least. Beside libllama less than a thousandth
// passes, of Gemma half (parity_test.cc).
constexpr double kCounts = 0.02;

// Tensors whose values are so many times as large, where those of a tiny model are so small that a
// particularity hardly shows.
struct Scaled {
  const char* suffix;
  float factor;
};

// A switch of a family: the model is opened as one of a family without it.
struct Switch {
  const char* name;
  const char* arch;
  void (*leave_out)(Family& family);
  std::vector<Scaled> scaled = {};
};

class FamilySwitches : public testing::TestWithParam<Switch> {};

// Has the family read a file as before, and then change what it has read.
template <class Change>
void ReadsBut(Family& family, Change) {
  family.read = [](const MetaKeys& keys, ModelSpec& spec) -> Status {
    TRY_STATUS(FindFamily(Families(), spec.arch_name)->read(keys, spec));
    Change()(spec);
    return {};
  };
}

// The same, of layers with an indexer.
template <class Change>
void ChangesIndexed(Family& family, Change) {
  ReadsBut(family, [](ModelSpec& spec) {
    for (LayerSpec& layer : spec.layers) {
      auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
      if (attention != nullptr && attention->indexer) Change()(*attention);
    }
  });
}
// Has what was read of a family without a reader of its own changed.
template <class Change>
void SpoilsSpec(Family& family, Change) {
  family.read = [](const MetaKeys& /*keys*/, ModelSpec& spec) -> Status {
    Change()(spec);
    return {};
  };
}
template <class Change>
void Spoils(Family& family, Change) {
  SpoilsSpec(family, [](ModelSpec& spec) {
    for (LayerSpec& layer : spec.layers) {
      auto* pooled = std::get_if<PooledAttentionSpec>(&layer.mixer);
      if (pooled != nullptr && pooled->n_pool > 0) Change()(*pooled);
    }
  });
}

// NOLINTNEXTLINE(readability-function-size): a table, a row after the other.
std::vector<Switch> Switches() {
  return {
      {"key_heads_in_turn", "qwen35moe",
       [](Family& f) { f.states.sharing = HeadSharing::kConsecutive; }},
      {"key_heads_of_neighbours", "qwen3next",
       [](Family& f) { f.states.sharing = HeadSharing::kInTurn; }},
      {"norms_of_heads", "qwen35moe", [](Family& f) { f.attention.qk_norm = QkNorm::kNone; }},
      {"weights_of_the_chosen", "qwen35moe", [](Family& f) { f.router.renormalise = false; }},
      {"sigmoid_of_short_convolutions", "lfm2moe", [](Family& f) { f.router.renormalise = false; }},
      {"scales", "granitehybrid", [](Family& f) { f.has_scales = false; }},
      {"scales_of_attention_alone", "granitemoe", [](Family& f) { f.has_scales = false; }},
      {"neighbouring_pairs", "granitehybrid",
       [](Family& f) { f.attention.rope_pairs = RopePairs::kHalves; }},
      {"embedding_by_its_length", "afmoe", [](Family& f) { f.scales_embedding = false; }},
      {"norms_behind_experts", "afmoe", [](Family& f) { f.has_post_norms = false; }},
      {"layers_without_rotation", "afmoe", [](Family& f) { f.windows.unrotated_every = 0; }},
      {"windows", "afmoe", [](Family& f) { f.windows.period = 0; }},
      {"weights_scale", "nemotron_h_moe", [](Family& f) { f.router.scales_by_key = false; }},
      {"weights_of_the_chosen_by_key", "nemotron_h_moe",
       [](Family& f) { f.router.renormalise_by_key = false; }},
      {"sigmoid", "nemotron_h_moe", [](Family& f) { f.router.gating = Gating::kSoftmax; }},
      {"no_rotation", "nemotron_h_moe", [](Family& f) { f.rotates = true; }},
      {"values_are_normed",
       "gemma4",
       [](Family& f) { f.attention.norms_values = false; },
       {{"post_attention_norm.weight", 4.0F}}},
      {"scale_of_scores", "gemma4", [](Family& f) { f.attention_scale = 0.0F; }},
      {"cap_of_logits", "gemma4", [](Family& f) { f.read = nullptr; }},
      {"embedding_by_its_length_too", "gemma4", [](Family& f) { f.scales_embedding = false; }},
      {"gelu",
       "gemma4",
       [](Family& f) { f.experts.activation = Activation::kSwiglu; },
       {{"post_ffw_norm.weight", 4.0F}}},
      {"the_first_of_four_sees_all", "laguna", [](Family& f) { f.windows.is_first = false; }},
      {"latents_are_turned", "deepseek2", [](Family& f) { f.latent.rotates = false; }},
      {"neighbouring_pairs_of_latents", "deepseek2",
       [](Family& f) { f.latent.rope_pairs = RopePairs::kHalves; }},
      {"halves_of_indexers", "deepseek32",
       [](Family& f) { f.latent.indexer_pairs = RopePairs::kAdjacent; }},
      {"neighbours_of_indexers", "glm-dsa",
       [](Family& f) { f.latent.indexer_pairs = RopePairs::kHalves; }},
      {"kimi_is_not_turned", "kimi-linear", [](Family& f) { f.latent.rotates = true; }},
      {"kimi_weights_of_the_chosen", "kimi-linear",
       [](Family& f) { f.router.renormalise = false; }},
      {"ling_decays_have_a_bound", "bailingmoe3",
       [](Family& f) {
         f.read = [](const MetaKeys& /*keys*/, ModelSpec& spec) -> Status {
           for (LayerSpec& layer : spec.layers) {
             if (auto* delta = std::get_if<DeltaNetSpec>(&layer.mixer)) delta->decay_bound = -1.0F;
           }
           return {};
         };
       }},
      {"ling_limits", "bailingmoe3", [](Family& f) { f.limits = Limits::kNone; }},
      {"ling_is_turned", "bailingmoe3", [](Family& f) { f.latent.rotates = false; }},
      {"ling_neighbouring_pairs", "bailingmoe3",
       [](Family& f) { f.latent.rope_pairs = RopePairs::kHalves; }},
      {"ling_scores_have_one_scale", "bailingmoe3",
       [](Family& f) { f.latent.scales_scores = true; }},
      {"ling_weights_of_the_chosen", "bailingmoe3",
       [](Family& f) { f.router.renormalise_by_key = false; }},
      {"ling_weights_scale", "bailingmoe3", [](Family& f) { f.router.scales_by_key = false; }},
      {"glm_decays_have_a_bound", "glm5-next", [](Family& f) { f.states.has_decay_bound = false; }},
      {"glm_rates_are_negative", "glm5-next",
       [](Family& f) { f.states.has_negative_rates = false; }},
      {"glm_limits", "glm5-next", [](Family& f) { f.limits = Limits::kNone; }},
      {"glm_limits_of_gates", "glm5-next",
       [](Family& f) { f.experts.activation = Activation::kSwiglu; }},
      {"glm_weights_of_the_chosen", "glm5-next",
       [](Family& f) { f.router.renormalise_by_key = false; }},
      {"glm_weights_scale", "glm5-next", [](Family& f) { f.router.scales_by_key = false; }},
      {"glm_sinkhorn_iterates",
       "glm5-next",
       [](Family& f) {
         f.read = [](const MetaKeys& /*keys*/, ModelSpec& spec) -> Status {
           spec.streams->n_iterations = 1;
           return {};
         };
       },
       {{"hc_attn_scale.weight", 4.0F}, {"hc_ffn_scale.weight", 4.0F}}},
      {"glm_epsilon_of_streams", "glm5-next",
       [](Family& f) {
         f.read = [](const MetaKeys& /*keys*/, ModelSpec& spec) -> Status {
           spec.streams->eps = 0.1F;
           return {};
         };
       }},
      {"flash_next_sigmoid_gates", "qwen4exp",
       [](Family& f) { f.states.has_sigmoid_gates = false; }},
      {"flash_next_key_heads_in_turn", "qwen4exp",
       [](Family& f) { f.states.sharing = HeadSharing::kConsecutive; }},
      {"flash_next_weights_of_the_chosen", "qwen4exp",
       [](Family& f) { f.router.renormalise = false; }},
      {"flash_next_norms_of_heads",
       "qwen4exp",
       [](Family& f) { f.attention.qk_norm = QkNorm::kNone; },
       {{"attn_k.weight", 2.0F}, {"attn_output.weight", 3.0F}}},
      {"flash_next_blocks",
       "qwen4exp",
       [](Family& f) {
         ReadsBut(f, [](ModelSpec& spec) {
           for (LayerSpec& layer : spec.layers) {
             auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
             if (attention != nullptr) attention->indexer->is_idle = true;
           }
         });
       },
       {{"attn_q_norm.weight", 3.0F}}},
      {"flash_next_hash", "qwen4exp",
       [](Family& f) { ReadsBut(f, [](ModelSpec& spec) { spec.ngrams->factors[1] ^= 2; }); }},
      {"flash_next_hash_of_three", "qwen4exp",
       [](Family& f) { ReadsBut(f, [](ModelSpec& spec) { spec.ngrams->factors[2] ^= 2; }); }},
      {"flash_next_heads_of_the_hash", "qwen4exp",
       [](Family& f) {
         ReadsBut(f, [](ModelSpec& spec) {
           for (NgramSpec::Head& head : spec.ngrams->heads) --head.count;
         });
       }},
      {"m3_norms_of_heads", "minimax-m3", [](Family& f) { f.attention.qk_norm = QkNorm::kNone; }},
      {"m3_halves_of_heads", "minimax-m3",
       [](Family& f) { f.attention.rope_pairs = RopePairs::kAdjacent; }},
      {"m3_half_is_turned", "minimax-m3",
       [](Family& f) { ChangesIndexed(f, [](AttentionSpec& layer) { layer.rope->n_dims /= 2; }); }},
      {"m3_activation", "minimax-m3",
       [](Family& f) { f.experts.activation = Activation::kSwiglu; }},
      {"m3_sigmoid", "minimax-m3",
       [](Family& f) {
         ReadsBut(f, [](ModelSpec& spec) { spec.router.gating = Gating::kSoftmax; });
       }},
      {"m3_weights_of_the_chosen", "minimax-m3",
       [](Family& f) { f.router.renormalise_by_key = false; }},
      {"m3_weights_scale", "minimax-m3", [](Family& f) { f.router.scales_by_key = false; }},
      {"m3_blocks", "minimax-m3",
       [](Family& f) {
         ChangesIndexed(f, [](AttentionSpec& layer) { layer.indexer->is_idle = true; });
       }},
      {"m3_number_of_blocks", "minimax-m3",
       [](Family& f) {
         ChangesIndexed(f, [](AttentionSpec& layer) { layer.indexer->top_k -= 8; });
       }},
      {"m3_size_of_blocks", "minimax-m3",
       [](Family& f) {
         ChangesIndexed(f, [](AttentionSpec& layer) { layer.indexer->n_pool /= 2; });
       }},
      {"m3_last_blocks", "minimax-m3",
       [](Family& f) {
         ChangesIndexed(f, [](AttentionSpec& layer) { layer.indexer->n_last_pools = 3; });
       }},
      {"v4_windows", "deepseek4",
       [](Family& f) { Spoils(f, [](PooledAttentionSpec& a) { a.window = 16; }); }},
      {"v4_pools", "deepseek4",
       [](Family& f) {
         Spoils(f, [](PooledAttentionSpec& a) {
           if (a.indexer) a.indexer->top_k = 1;
         });
       }},
      {"v4_pools_turn_by_their_own_base", "deepseek4",
       [](Family& f) { Spoils(f, [](PooledAttentionSpec& a) { a.rope.freq_base = 1e4F; }); }},
      {"v4_yarn", "deepseek4",
       [](Family& f) { Spoils(f, [](PooledAttentionSpec& a) { a.rope.ext_factor = 0.0F; }); }},
      {"v4_yarns_magnitude", "deepseek4",
       [](Family& f) { Spoils(f, [](PooledAttentionSpec& a) { a.rope.attn_factor = 1.0F; }); }},
      {"v4_neighbouring_pairs", "deepseek4",
       [](Family& f) { f.attention.rope_pairs = RopePairs::kHalves; }},
      {"v4_roots_of_softplus", "deepseek4",
       [](Family& f) {
         SpoilsSpec(f, [](ModelSpec& spec) { spec.router.gating = Gating::kSigmoid; });
       }},
      {"v4_weights_of_the_chosen", "deepseek4",
       [](Family& f) { f.router.renormalise_by_key = false; }},
      {"v4_weights_scale", "deepseek4", [](Family& f) { f.router.scales_by_key = false; }},
      {"v4_limits", "deepseek4", [](Family& f) { f.limits = Limits::kNone; }},
      {"v4_limits_of_gates", "deepseek4",
       [](Family& f) { f.experts.activation = Activation::kSwiglu; }},
      {"v4_sinkhorn_iterates",
       "deepseek4",
       [](Family& f) { SpoilsSpec(f, [](ModelSpec& spec) { spec.streams->n_iterations = 1; }); },
       {{"hc_attn_scale.weight", 8.0F}, {"hc_ffn_scale.weight", 8.0F}}},
      {"v4_the_head_has_a_mix_of_its_own",
       "deepseek4",
       [](Family& f) { SpoilsSpec(f, [](ModelSpec& spec) { spec.streams->mixes_head = false; }); },
       {{"output_hc_scale.weight", 4.0F}}},
      {"windows_of_gated_layers", "laguna", [](Family& f) { f.windows.period = 0; }},
  };
}

INSTANTIATE_TEST_SUITE_P(All, FamilySwitches, testing::ValuesIn(Switches()),
                         [](const auto& one) { return std::string(one.param.name); });

TinySpec SwitchSpec(const char* arch) {
  return {
      .arch = arch, .type = "F32", .layers = 5, .vocab = kSwitchVocab, .window = 8, .limit = 0.5F};
}

// The logits behind a text.
std::vector<float> LogitsAs(const std::string& path, const Family& family) {
  auto model = ModelFile::Open(path, {&family, 1});
  EXPECT_TRUE(model) << model.error().message;
  if (!model) return {};
  auto engine = NativeEngine::Open(*std::move(model), EngineOptions{.threads = 2, .ctx = 64});
  EXPECT_TRUE(engine) << engine.error().message;
  if (!engine) return {};
  Sequence sequence = (*engine)->NewSequence();
  const auto last = Append(**engine, sequence, SeededTokens(kSwitchText, kSwitchVocab, 5));
  EXPECT_TRUE(last) << last.error().message;
  return last ? std::vector<float>(last->begin(), last->end()) : std::vector<float>();
}

double ShareThatDiffers(std::span<const float> expected, std::span<const float> other) {
  EXPECT_EQ(expected.size(), other.size());
  double difference = 0.0;
  double size = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += (expected[i] - other[i]) * (expected[i] - other[i]);
    size += expected[i] * expected[i];
  }
  return std::sqrt(difference / size);
}

TEST_P(FamilySwitches, EachCounts) {
  const TempFolder folder;
  const std::string path = WriteTinyModel(folder.path(), SwitchSpec(GetParam().arch));
  for (const Scaled& scaled : GetParam().scaled) {
    ChangeFloats(path, scaled.suffix, [&](const TensorInfo&, std::span<float> values) {
      for (float& value : values) value *= scaled.factor;
    });
  }
  const Family family = *FindFamily(Families(), GetParam().arch);
  Family without = family;
  GetParam().leave_out(without);
  EXPECT_GT(ShareThatDiffers(LogitsAs(path, family), LogitsAs(path, without)), kCounts);
}

// A particularity without a switch: the file is changed so that the engine computes what it would
// without.
struct Particularity {
  const char* name;
  TinySpec spec;
  void (*leave_out)(const std::string& path);
};

class Particularities : public testing::TestWithParam<Particularity> {};

// A single layer, turned by one base: keys do not depend on results, and what is left of the last
// position's results is a matrix behind a rotation that is known.
TinySpec OneTurnedLayer() {
  TinySpec spec = SwitchSpec("deepseek4");
  spec.layers = 1;
  spec.orig_context = 0;
  return spec;
}
// Joins the rotation of the last position to the matrix behind results that are turned back by it.
void TurnForth(const std::string& path) {
  const auto model = ModelFile::Open(path);
  ASSERT_TRUE(model) << model.error().message;
  const PooledAttentionSpec& spec = *model->spec.layers[0].pooled_attention();
  ASSERT_EQ(spec.rope_pairs, RopePairs::kAdjacent);
  ASSERT_EQ(spec.rope.ext_factor, 0.0F);
  const auto turn = [&](std::span<float> last) {
    for (size_t i = 0; i < last.size(); i += 2) {
      const double part = static_cast<double>(i) / static_cast<double>(last.size());
      const double angle = (kSwitchText - 1) * std::pow(double{spec.rope.freq_base}, -part) *
                           double{spec.rope.freq_scale};
      const double a = last[i];
      const double b = last[i + 1];
      last[i] = static_cast<float>(a * std::cos(angle) + b * std::sin(angle));
      last[i + 1] = static_cast<float>(b * std::cos(angle) - a * std::sin(angle));
    }
  };
  ChangeFloats(path, "attn_output_a.weight", [&](const TensorInfo&, std::span<float> values) {
    for (size_t end = spec.head_dim; end <= values.size(); end += spec.head_dim) {
      turn(values.subspan(end - spec.rope.n_dims, spec.rope.n_dims));
    }
  });
}

std::vector<Particularity> AllParticularities() {
  return {
      // Positions weigh nothing in the pool behind their own.
      {"v4_pools_overlap", SwitchSpec("deepseek4"),
       [](const std::string& path) {
         ChangeFloats(path, "_compressor_ape.weight",
                      [](const TensorInfo& tensor, std::span<float> values) {
                        if (tensor.ne[1] != 4) return;  // pools of 128 positions do not overlap
                        const auto row = static_cast<size_t>(tensor.ne[0]);
                        for (size_t at = 0; at < values.size(); at += row) {
                          std::ranges::fill(values.subspan(at, row / 2), -1e30F);
                        }
                      });
       }},
      // Results of a group of heads take the other group's way.
      {"v4_groups_of_heads", SwitchSpec("deepseek4"),
       [](const std::string& path) {
         ChangeFloats(path, "attn_output_a.weight", [](const TensorInfo&, std::span<float> values) {
           std::ranges::swap_ranges(values.first(values.size() / 2),
                                    values.subspan(values.size() / 2));
         });
       }},
      {"v4_results_are_turned_back", OneTurnedLayer(), TurnForth},
  };
}

INSTANTIATE_TEST_SUITE_P(All, Particularities, testing::ValuesIn(AllParticularities()),
                         [](const auto& one) { return std::string(one.param.name); });

TEST_P(Particularities, EachCounts) {
  const TempFolder folder;
  const std::string path = WriteTinyModel(folder.path(), GetParam().spec);
  const Family family = *FindFamily(Families(), GetParam().spec.arch);
  const std::vector<float> expected = LogitsAs(path, family);
  GetParam().leave_out(path);
  EXPECT_GT(ShareThatDiffers(expected, LogitsAs(path, family)), kCounts);
}

}  // namespace
}  // namespace moestro
