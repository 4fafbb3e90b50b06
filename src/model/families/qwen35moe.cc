// SPDX-License-Identifier: MIT
// Qwen3.5 and 3.6 MoE: three layers of four are gated delta nets, the fourth is attention whose
// values a gate weighs; a shared expert with a gate of its own.
#include <algorithm>
#include <numeric>
#include <string_view>

#include "model/families/families.h"

namespace moestro {
namespace {

// Pairs of dimensions are dealt out in turn to the positions in a text, in an image's rows and in
// its columns. In a text all three are equal, so that every pair is rotated alike if each has been
// dealt out.
Status CheckSections(const MetaKeys& keys, ModelSpec& spec) {
  constexpr std::string_view kKey = "rope.dimension_sections";
  if (!keys.Has(kKey)) {
    return Fail(Errc::kInvalidFile, "{}: metadata '{}' is missing; convert the model again",
                keys.path(), keys.Full(kKey));
  }
  const AttentionSpec* const attention = spec.first_rotated();
  if (attention == nullptr) return {};
  TRY(const auto sections, keys.Counts(kKey, {0, 4096}, 4, 4));
  const uint32_t sum = std::accumulate(sections.begin(), sections.end(), 0U);
  bool covers_all = sum > 0;
  for (uint32_t p = 0; p < std::min(sum, attention->rope->n_dims / 2); ++p) {
    covers_all = covers_all && p < 3 * sections[p % 3];
  }
  if (covers_all) return {};
  return Fail(Errc::kUnsupported, "{}: {} leaves pairs of dimensions without a position",
              keys.path(), keys.Full(kKey));
}

}  // namespace

Family Qwen35Moe() {
  Family family{.name = "qwen35moe",
                .attention = {.qk_norm = QkNorm::kPerHead, .output_gate = OutputGate::kWithQuery},
                .router = {.renormalise = true, .scales_by_key = false},
                .states = {.mixer = StateMixer::kDeltaNet, .sharing = HeadSharing::kInTurn},
                .feed_forward_length = FeedForwardLength::kUsedExperts,
                .shared_expert = SharedExpert::kOwnWidth,
                .has_next_token_layers = true,
                .may_hold_vision = true,
                .model_tensors = CommonModelTensors(),
                .layer_tensors = CommonLayerTensors(),
                .read = CheckSections,
                .written = {.has_free_heads = true,
                            .can_be_tied = true,
                            .has_head_length_keys = true,
                            .has_rope_length_key = true,
                            .has_rope_sections = true,
                            .has_other_names = true,
                            .rotates_quarter = true}};
  LayerRoles<Presence>& layer = family.layer_tensors;
  RequireQkNorms(layer);
  RequireDeltaNet(layer);
  layer.state_alpha = Presence::kRequired;
  layer.state_beta = Presence::kRequired;
  layer.shared_router = Presence::kRequired;
  RequireSharedExpert(layer);
  return family;
}

}  // namespace moestro
