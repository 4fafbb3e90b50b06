// SPDX-License-Identifier: MIT
// A model whose weights are floats in memory: written as a GGUF of F32 tensors, and evaluated by
// plain loops that share nothing with the engine. For families that no other program knows.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/model_spec.h"
#include "model/families/families.h"

namespace moestro {

struct FloatTensor {
  std::vector<int64_t> ne;  // as in a GGUF: the contiguous dimension first
  std::vector<float> values;
};

// What the model computes; the tensors that are there decide about biases and the shared expert.
struct FloatShape {
  uint32_t layers = 3;
  uint32_t dense_layers = 0;  // the first ones
  uint32_t embd = 64;
  uint32_t heads = 4;
  uint32_t kv_heads = 2;
  uint32_t dim_k = 16;
  uint32_t dim_v = 16;
  uint32_t rotated = 8;  // of dim_k, in halves
  uint32_t ff = 32;
  uint32_t dense_ff = 96;
  uint32_t odd_ff = 0;  // instead of `ff` in odd layers; 0: all are alike
  uint32_t latent = 0;  // values that experts take and give; 0: `embd`
  uint32_t shared_ff = 0;
  uint32_t experts = 8;
  uint32_t used = 3;
  uint32_t groups = 1;
  uint32_t groups_used = 1;
  uint32_t vocab = 48;
  // Each so many-th layer, from this one on, has a state instead of attention; 0: none
  // (running_sum_testing.h).
  uint32_t state_every = 0;
  // Odd layers with attention see their last so many positions only, do not turn heads by their
  // position, and have one key-value head; 0: all layers are alike.
  uint32_t odd_window = 0;
  bool has_lone_parts = false;  // even layers are mixers alone, odd ones experts alone
  Gating gating = Gating::kSoftmax;
  bool renormalise = false;
  float weight_scale = 1.0F;
  Activation activation = Activation::kSwiglu;
  QkNorm qk_norm = QkNorm::kNone;
  bool has_sinks = false;
  bool has_attention_biases = false;  // of q, k, v and the output
  bool has_router_bias = false;
  bool has_selection_bias = false;
  bool has_expert_biases = false;
  bool is_fused = false;  // gate and up in one tensor
};

// What layer `layer` has.
inline bool HasState(const FloatShape& s, uint32_t layer) {
  return s.state_every > 0 && layer % s.state_every + 1 == s.state_every;
}
inline bool IsOdd(const FloatShape& s, uint32_t layer) {
  return s.odd_window > 0 && layer % 2 == 1;
}
inline bool HasMixer(const FloatShape& s, uint32_t layer) {
  return !s.has_lone_parts || layer % 2 == 0;
}
inline bool HasFeedForward(const FloatShape& s, uint32_t layer) {
  return !s.has_lone_parts || layer % 2 == 1;
}
inline uint32_t WidthOf(const FloatShape& s, uint32_t layer) {
  return s.odd_ff > 0 && layer % 2 == 1 ? s.odd_ff : s.ff;
}
inline uint32_t ExpertEmbd(const FloatShape& s) { return s.latent > 0 ? s.latent : s.embd; }
inline uint32_t KvHeadsOf(const FloatShape& s, uint32_t layer) {
  return IsOdd(s, layer) ? 1 : s.kv_heads;
}

// What such a file is opened as: whatever a family can declare, of which the file makes use or not.
Family SyntheticFamily(const FloatShape& shape);

class FloatModel {
 public:
  // Random weights from `seed`.
  FloatModel(const FloatShape& shape, uint32_t seed);

  // Architecture "synthetic".
  void Write(const std::string& path) const;

  // Logits after each token, [tokens][vocab], as `shape` says: the model's own or another one, to
  // see what a switch is worth.
  std::vector<float> Logits(const std::vector<Token>& tokens, const FloatShape& shape) const;
  const FloatShape& shape() const { return shape_; }

 private:
  void Add(const std::string& name, std::vector<int64_t> ne, float mean, float deviation);
  void AddMatrix(const std::string& name, std::vector<int64_t> ne);
  void AddLayer(uint32_t layer);
  void AddMixer(uint32_t layer);
  void AddExperts(uint32_t layer);
  void AddAttentionExtras(const std::string& blk, uint32_t kv_heads);

  FloatShape shape_;
  std::mt19937 random_;
  std::map<std::string, FloatTensor> tensors_;
};

}  // namespace moestro
