// SPDX-License-Identifier: MIT
// Importances of the routed experts' matrices: the squares of what they are multiplied with,
// summed up column by column while a model reads texts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/model_spec.h"
#include "engine/engine.h"

namespace moestro {

// Adds up what the experts of a model are given. Engine's thread.
class ImatrixSums {
 public:
  explicit ImatrixSums(const ModelSpec& spec);
  // Of all sums of such a model.
  static uint64_t BytesFor(const ModelSpec& spec);

  void Add(const SeenExperts& seen);

  // Of a layer with experts.
  std::span<const float> inputs(size_t layer) const { return layers_[layer].inputs; }
  std::span<const float> products(size_t layer) const { return layers_[layer].products; }
  std::span<const float> counts(size_t layer) const { return layers_[layer].counts; }
  bool is_finite() const;

 private:
  struct Layer {
    std::vector<float> inputs;    // [expert][n_embd_expert]
    std::vector<float> products;  // [expert][n_ff]
    std::vector<float> counts;    // [expert]
  };
  uint32_t n_embd_;
  std::vector<uint32_t> n_ff_;  // [layer]
  std::vector<Layer> layers_;
};

struct ImatrixOptions {
  std::string model;
  EngineOptions engine;
  std::vector<std::string> texts;  // paths
  uint32_t tokens = 0;             // at most, of each text; 0: all
  std::string path;                // of the file to write
  Progress progress = {};          // may be empty
};

struct ImatrixReport {
  uint64_t tokens = 0;
  uint32_t experts = 0;             // of a layer
  std::vector<uint32_t> unvisited;  // [layer with experts]: experts that no token came to
};

// Runs the model on the texts, in sequences of at most a context, and writes the importances of its
// experts in llama.cpp's GGUF format. Errors: those of the engine, of the texts and of
// WriteImatrix(); kInvalidRequest without a token; kInvalidFile when the model computes what is no
// number.
Result<ImatrixReport> MakeImatrix(const ImatrixOptions& options);

}  // namespace moestro
