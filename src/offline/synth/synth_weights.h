// SPDX-License-Identifier: MIT
// The values of synthetic tensors. All draws are a function of (seed, tensor name), so the same
// seed gives the same bytes on every machine, whatever the number of shards, and the same
// underlying values in every type.
//
// Zero means matter: otherwise the hidden states of all tokens fall onto one direction, and then
// every token is routed to the same experts.
//
// A model with few weights is random throughout. In a larger one the big matrices are cut from a
// block of 4 Mi random weights that is drawn and quantised once per (type, row, deviation) and laid
// down again and again from a random row on: it can be written as fast as the disk takes it.
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "offline/synth/synth_plan.h"

namespace moestro {

// Numbers from one stream. Integer arithmetic only, hence the same everywhere.
class SynthRng {
 public:
  SynthRng(uint64_t seed, std::string_view stream);
  uint64_t Next();
  uint64_t Below(uint64_t limit) { return Next() % limit; }
  // The sum of four uniform draws: mean 0, variance 1, never beyond 3.5.
  float Normal();

 private:
  uint64_t state_;
};

// Row scales that make the experts of one router unequally popular. A threshold picture of top-k:
// an expert whose logits have deviation s is among the chosen when they pass a common threshold, so
// s is set to give rank r the share (r+1)^-skew of the choices; no expert passes 45 % of the
// tokens, the rest of a capped share goes to the others. Which expert has which rank depends on
// seed and tensor name. Choices still depend on the token. All ones for skew 0.
// For comparison: in recorded routing of OLMoE-1B-7B (64 experts, 8 used, 299 tokens) the 8
// favourites of a layer take 29 to 45 % of the choices, 37 % on average. Skew 1 gives them 41 %,
// skew 0 some 15 %. REQUIRES: skew == 0 or 2 * used < experts.
std::vector<float> PopularityScales(uint32_t experts, uint32_t used, double skew, SynthRng rng);

class SynthWeights {
 public:
  struct Settings {
    uint64_t seed = 1;
    double skew = 0;          // 0: the experts are equally popular
    uint32_t used = 1;        // experts per token, needed for the skew
    uint32_t experts = 1;     // of a layer, needed for experts of tokens
    uint64_t tile_above = 0;  // quantised tensors of more weights are tiled; 0: none is
  };
  using Sink = std::function<Status(std::span<const std::byte>)>;

  explicit SynthWeights(const Settings& settings) : settings_(settings) {}

  // Gives exactly tensor.bytes() bytes to `sink`, in order; returns its error at once.
  Status Generate(const PlannedTensor& tensor, const Sink& sink);

 private:
  using BlockKey = std::tuple<int, int64_t, float>;  // type, row, deviation

  Status Draw(const PlannedTensor& tensor, const Sink& sink);
  Status DrawExperts(const PlannedTensor& tensor, const Sink& sink);
  Status Tile(const PlannedTensor& tensor, const Sink& sink);
  const std::vector<std::byte>& BlockFor(const PlannedTensor& tensor);

  Settings settings_;
  std::map<BlockKey, std::vector<std::byte>> blocks_;
};

}  // namespace moestro
