// SPDX-License-Identifier: MIT
// The nodes of a model's dense part: everything but the routed experts. A layer's nodes take the
// output of the layer before, hidden [rows][n_embd], and give the inputs of its experts. Values
// that outlive a graph have their places in StepBuffers.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/look_ahead.h"
#include "core/ids.h"
#include "core/model_spec.h"
#include "devices/step_buffers.h"
#include "engine/engine_options.h"
#include "forward/dense/blocks.h"
#include "forward/dense/graph_runner.h"
#include "forward/dense/hyper_connections.h"
#include "forward/dense/mixers/mixer.h"
#include "forward/dense/ngrams.h"
#include "forward/dense/step_rows.h"
#include "memory/layer_values.h"

namespace moestro {

class DenseNodes {
 public:
  // Everything is borrowed and must outlive this.
  struct Parts {
    const ModelSpec& spec;
    const ModelTensors& tensors;
    const StepBuffers& buffers;
    const KvCache& kv;
    GraphRunner& graphs;       // nodes go to its graph under construction
    Ngrams* ngrams = nullptr;  // null: no layer takes in n-grams
    const LookAheadRouters* look_ahead = nullptr;
    bool is_on_device = false;
  };
  explicit DenseNodes(const Parts& parts)
      : parts_(parts), norm_{.kernel = RowKernel::ForThisMachine(), .eps = parts.spec.rms_eps} {
    if (parts.spec.streams) {
      streams_.emplace(*parts.spec.streams, parts.spec.n_embd, parts.spec.rms_eps);
    }
  }
  DenseNodes(const DenseNodes&) = delete;
  DenseNodes& operator=(const DenseNodes&) = delete;

  // Makes a mixer for each kind of layer. `from` lacks the norm and the number of cells. As
  // MakeMixer().
  Status MakeMixers(MixerParts from, const MakeStateMixer& make_state);
  std::span<const std::unique_ptr<Mixer>> mixers() const { return mixers_; }
  Mixer* mixer_of(size_t layer) const { return mixer_of_[layer]; }  // null: the layer has none
  // The first layer with the mixer.
  uint32_t LayerOf(const Mixer& mixer) const;
  // The rows of the step whose graphs are built.
  void SetStepRows(size_t n_rows) { n_step_rows_ = n_rows; }

  // Values that pass from a layer to the next within a graph; null: they are in their regions.
  struct LayerEnd {
    ggml_tensor* hidden =
        nullptr;  // the layer's output; where the next layer ends the sum: the sum
    ggml_tensor* residual = nullptr;
    ggml_tensor* shared = nullptr;
  };
  // A layer's values, all [rows][n_embd] but the logits [rows][n_expert]. A layer without experts
  // has `hidden` alone.
  struct LayerValues {
    ggml_tensor* hidden = nullptr;
    ggml_tensor* attended = nullptr;   // in the region kResidual
    ggml_tensor* expert_in = nullptr;  // in kFfnIn
    ggml_tensor* logits = nullptr;     // in kRouter
    ggml_tensor* shared = nullptr;     // in kShared; null: nothing is added beside the residual
  };
  struct LayerWish {
    uint32_t look_ahead = 0;  // layers behind this one whose routers are evaluated, too
    // The place of the router's logits of the first row, in bytes from the begin of the region.
    StepBuffers::Region logits = StepBuffers::kRouter;
    uint64_t logits_at = 0;
  };
  // hidden + partial [rows][n_embd], where the layer before has left both.
  LayerEnd WithPartial(StepRows rows) const;
  // Adds a layer's nodes for rows of the step.
  LayerValues Layer(LayerId layer, StepRows rows, const LayerWish& wish, const LayerEnd& before);
  // hidden [rows][n_embd] -> keys and values of a layer that attends to the source.
  void Source(LayerId layer, StepRows rows);
  // logits [rows][n_vocab] = output * norm(hidden), from row `at` of the logits on.
  void Head(StepRows rows, uint32_t at);
  // The layer that a hidden state comes from, which a predicting layer takes in.
  enum class HiddenOf : uint8_t { kLast, kPredicting };
  // Embeddings in kFfnIn, and hidden of the rows before -> hidden [rows][n_embd], the input of the
  // predicting layer. REQUIRES: the model predicts.
  void JoinPrediction(StepRows rows, HiddenOf from);
  // The same as Head() behind the predicting layer.
  void PredictionHead(StepRows rows);

  // Whether a layer's input is in parts: the results of the experts of the layer before, and the
  // residual; with several streams also those of a layer without experts.
  bool BringsParts(size_t layer) const {
    return layer > 0 && (parts_.spec.streams || parts_.spec.ends_in_next(layer - 1));
  }
  // Layers behind `layer` whose routers are evaluated ahead, of at most `look_ahead`.
  uint32_t LayersAhead(LayerId layer, uint32_t look_ahead) const;
  // Rows of StepBuffers, [rows][n_embd].
  ggml_tensor* Region(StepBuffers::Region where, StepRows rows) const {
    return Region(where, rows, parts_.spec.n_embd);
  }
  // Places result [rows][...] at row `first_row` of the region.
  void Output(ggml_tensor* result, StepBuffers::Region region, uint64_t first_row) {
    OutputAt(result, region, first_row * result->nb[1]);
  }
  void OutputAt(ggml_tensor* result, StepBuffers::Region region, uint64_t bytes);

 private:
  ggml_tensor* Region(StepBuffers::Region where, StepRows rows, uint32_t width) const;
  ggml_tensor* Input(uint32_t layer, StepRows rows, const LayerEnd& before);
  ggml_tensor* Streams(uint32_t layer, StepRows rows);
  LayerValues LayerOfStreams(LayerId layer, StepRows rows, const LayerWish& wish);
  bool CanSumAndNorm(const LayerTensors& w, const ggml_tensor* mixed) const;
  LayerValues DenseBlock(LayerId layer, ggml_tensor* attended, ggml_tensor* ffn_in, StepRows rows);
  LayerValues InputsOfExperts(LayerId layer, ggml_tensor* attended, ggml_tensor* ffn_in,
                              StepRows rows, const LayerWish& wish);
  void LookAhead(LayerId layer, ggml_tensor* ffn_in, uint32_t look_ahead, StepRows rows);
  MixerGraph MixerGraphOf(LayerId layer, ggml_tensor* x, StepRows rows);
  ggml_tensor* PredictionNorm(ggml_tensor* hidden) const;
  void Logits(ggml_tensor* normed, uint32_t at);

  const Parts parts_;
  RowNorm norm_;
  std::optional<HyperConnections> streams_;  // nullopt: one residual stream
  size_t n_step_rows_ = 0;
  std::vector<std::unique_ptr<Mixer>> mixers_;  // one for all equal layers
  std::vector<Mixer*> mixer_of_;                // [layer]
};

}  // namespace moestro
