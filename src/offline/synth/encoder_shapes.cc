// SPDX-License-Identifier: MIT
// Switch Transformers as published, which are the models that EdgeMoE was measured on.
#include <string>
#include <vector>

#include "offline/synth/synth_shapes.h"

namespace moestro {
namespace {

// The base models differ in their experts alone.
SynthShape SwitchBase(uint32_t experts, double billions) {
  return {.name = "switch-base-" + std::to_string(experts),
          .arch = "switch",
          .layers = 36,
          .experts = experts,
          .used = 1,
          .embd = 768,
          .ff = 3072,
          .dense_ff = 3072,
          .heads = 12,
          .kv_heads = 12,
          .head_dim = 64,
          .encoder_layers = 12,
          .sparse_every = 2,
          .is_tied = true,
          .vocab = 32128,
          .context = 512,
          .rope_base = 1e4F,
          .rms_eps = 1e-6F,
          .billions = billions};
}

}  // namespace

std::vector<SynthShape> EncoderShapes() {
  SynthShape large = SwitchBase(128, 26.3);
  large.name = "switch-large-128";
  large.layers = 72;
  large.embd = 1024;
  large.ff = large.dense_ff = 4096;
  large.heads = large.kv_heads = 16;
  large.encoder_layers = 24;
  return {SwitchBase(8, 0.62),  SwitchBase(16, 1.07),  SwitchBase(32, 1.98),
          SwitchBase(64, 3.79), SwitchBase(128, 7.41), large};
}

}  // namespace moestro
