// SPDX-License-Identifier: MIT
#include "offline/synth/synth_plan.h"

#include <cmath>
#include <utility>

#include "base/format.h"
#include "offline/synth/synth_family.h"

namespace moestro {
namespace {

// Deviations of what is not a matrix: large enough that a reader who drops such a tensor gets
// visibly different logits.
constexpr float kNormDeviation = 0.1F;
constexpr float kBiasDeviation = 0.1F;
// Of what shifts a router's probabilities: enough to change some choices of every token, too little
// to make favourites.
constexpr float kSelectionDeviation = 0.05F;

class Planner {
 public:
  Planner(const SynthShape& shape, const WeightScheme& scheme, const PlanChoices& choices)
      : shape_(shape), family_(*FindSynthFamily(shape.arch)), scheme_(scheme), choices_(choices) {}

  std::vector<PlannedTensor> Plan() {
    Head();
    for (layer_ = 0; layer_ < shape_.layers; ++layer_) {
      Attention();
      if (layer_ < shape_.dense_layers) {
        DenseBlock();
        continue;
      }
      Experts();
      if (shape_.shared_ff > 0) SharedExpert();
    }
    return std::move(plan_);
  }

 private:
  std::string Block(std::string_view suffix) const { return Format("blk.{}.{}", layer_, suffix); }

  // An embedding that serves as output matrix too must not blow up the logits.
  float EmbeddingDeviation() const {
    return choices_.is_tied ? 1.0F / std::sqrt(static_cast<float>(shape_.embd)) : 1.0F;
  }

  // For what is added to the hidden state: damped, all layers together add about as much as the
  // embedding.
  float ResidualScale() const {
    if (!choices_.is_damped) return EmbeddingDeviation();
    return EmbeddingDeviation() / std::sqrt(2.0F * static_cast<float>(shape_.layers));
  }

  // Fan-in decides the deviation, so that a normalised input gives an output of unit variance.
  void Matrix(std::string name, MatrixRole role, std::array<int64_t, 3> ne) {
    float deviation = 1.0F / std::sqrt(static_cast<float>(ne[0]));
    if (role == MatrixRole::kTokenEmbd) deviation = EmbeddingDeviation();
    if (role == MatrixRole::kAttnOutput || role == MatrixRole::kExpertDown ||
        role == MatrixRole::kSharedDown || role == MatrixRole::kDenseDown) {
      deviation *= ResidualScale();
    }
    const MatrixPlace place{.role = role,
                            .layer = layer_,
                            .layers = shape_.layers,
                            .experts = shape_.experts,
                            .row = ne[0],
                            .is_tied = choices_.is_tied};
    plan_.push_back(
        {.name = std::move(name),
         .ne = ne,
         .dims = ne[2] > 1 || role == MatrixRole::kExpertGateUp || role == MatrixRole::kExpertDown
                     ? 3
                     : 2,
         .type = TypeFor(scheme_, place),
         .fill = Fill::kNormal,
         .deviation = deviation});
  }

  void Vector(std::string name, uint64_t size, Fill fill, float deviation) {
    plan_.push_back({.name = std::move(name),
                     .ne = {static_cast<int64_t>(size), 1, 1},
                     .dims = 1,
                     .type = GGML_TYPE_F32,
                     .fill = fill,
                     .deviation = deviation});
  }
  void Norm(std::string name, uint64_t size) {
    Vector(std::move(name), size, Fill::kNearOne, kNormDeviation);
  }
  void Bias(std::string name, uint64_t size, float scale = 1.0F) {
    Vector(std::move(name), size, Fill::kNormal, kBiasDeviation * scale);
  }

  void Head() {
    const int64_t embd = shape_.embd;
    const int64_t vocab = shape_.vocab;
    Matrix("token_embd.weight", MatrixRole::kTokenEmbd, {embd, vocab, 1});
    if (!choices_.is_tied) Matrix("output.weight", MatrixRole::kOutput, {embd, vocab, 1});
    Norm("output_norm.weight", shape_.embd);
    if (family_.has_norm_biases) {
      Bias("output_norm.bias", shape_.embd);
      Bias("output.bias", shape_.vocab);
    }
    if (shape_.orig_context > 0) {
      Vector("rope_factors_long.weight", shape_.head_dim / 2, Fill::kRopeLong, 0);
      Vector("rope_factors_short.weight", shape_.head_dim / 2, Fill::kRopeShort, 0);
    }
  }

  void Attention() {
    const int64_t embd = shape_.embd;
    const auto q = static_cast<int64_t>(shape_.q_width());
    const auto kv = static_cast<int64_t>(shape_.kv_width());
    Norm(Block("attn_norm.weight"), shape_.embd);
    Norm(Block("ffn_norm.weight"), shape_.embd);
    if (family_.has_norm_biases) {
      Bias(Block("attn_norm.bias"), shape_.embd);
      Bias(Block("ffn_norm.bias"), shape_.embd);
      Bias(Block("attn_output.bias"), shape_.embd, ResidualScale());
    }
    Matrix(Block("attn_q.weight"), MatrixRole::kAttnQ, {embd, q, 1});
    Matrix(Block("attn_k.weight"), MatrixRole::kAttnK, {embd, kv, 1});
    Matrix(Block("attn_v.weight"), MatrixRole::kAttnV, {embd, kv, 1});
    Matrix(Block("attn_output.weight"), MatrixRole::kAttnOutput, {q, embd, 1});
    if (family_.has_qkv_biases) {
      Bias(Block("attn_q.bias"), shape_.q_width());
      Bias(Block("attn_k.bias"), shape_.kv_width());
      Bias(Block("attn_v.bias"), shape_.kv_width());
    }
    if (family_.qk_norm == QkNorm::kPerHead) {  // one norm for all heads
      Norm(Block("attn_q_norm.weight"), shape_.head_dim);
      Norm(Block("attn_k_norm.weight"), shape_.head_dim);
    }
    if (family_.qk_norm == QkNorm::kWholeVector) {  // over the whole vector
      Norm(Block("attn_q_norm.weight"), shape_.q_width());
      Norm(Block("attn_k_norm.weight"), shape_.kv_width());
    }
  }

  void Experts() {
    const int64_t embd = shape_.embd;
    const int64_t ff = shape_.ff;
    const int64_t experts = shape_.experts;
    plan_.push_back({.name = Block("ffn_gate_inp.weight"),
                     .ne = {embd, experts, 1},
                     .dims = 2,
                     .type = GGML_TYPE_F32,
                     .fill = Fill::kRouter,
                     .deviation = 1.0F / std::sqrt(static_cast<float>(embd))});
    if (family_.has_selection_bias) {
      Vector(Block("exp_probs_b.bias"), shape_.experts, Fill::kNormal, kSelectionDeviation);
    }
    Matrix(Block("ffn_gate_exps.weight"), MatrixRole::kExpertGateUp, {embd, ff, experts});
    Matrix(Block("ffn_up_exps.weight"), MatrixRole::kExpertGateUp, {embd, ff, experts});
    Matrix(Block("ffn_down_exps.weight"), MatrixRole::kExpertDown, {ff, embd, experts});
  }

  void DenseBlock() {
    const int64_t embd = shape_.embd;
    const int64_t ff = shape_.dense_ff;
    Matrix(Block("ffn_gate.weight"), MatrixRole::kDenseGateUp, {embd, ff, 1});
    Matrix(Block("ffn_up.weight"), MatrixRole::kDenseGateUp, {embd, ff, 1});
    Matrix(Block("ffn_down.weight"), MatrixRole::kDenseDown, {ff, embd, 1});
  }

  void SharedExpert() {
    const int64_t embd = shape_.embd;
    const int64_t ff = shape_.shared_ff;
    if (family_.shared == SynthFamily::Shared::kGated) {
      Vector(Block("ffn_gate_inp_shexp.weight"), shape_.embd, Fill::kNormal,
             1.0F / std::sqrt(static_cast<float>(embd)));
    }
    Matrix(Block("ffn_gate_shexp.weight"), MatrixRole::kSharedGateUp, {embd, ff, 1});
    Matrix(Block("ffn_up_shexp.weight"), MatrixRole::kSharedGateUp, {embd, ff, 1});
    Matrix(Block("ffn_down_shexp.weight"), MatrixRole::kSharedDown, {ff, embd, 1});
  }

  const SynthShape& shape_;
  const SynthFamily& family_;
  const WeightScheme& scheme_;
  PlanChoices choices_;
  uint32_t layer_ = 0;
  std::vector<PlannedTensor> plan_;
};

}  // namespace

std::vector<PlannedTensor> PlanTensors(const SynthShape& shape, const WeightScheme& scheme,
                                       const PlanChoices& choices) {
  return Planner(shape, scheme, choices).Plan();
}

}  // namespace moestro
