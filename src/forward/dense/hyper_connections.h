// SPDX-License-Identifier: MIT
// Several residual streams (StreamsSpec) as nodes of a graph on the CPU: streams become the input
// of a half layer, and take in the half's result.
//
// Thread rule: functions and graphs on the engine thread; nodes run on all threads of the team.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <span>

#include "core/model_spec.h"
#include "forward/dense/blocks.h"
#include "forward/dense/low_rank_streams.h"

namespace moestro {

// A row's result has the same bits beside any rows, with any number of threads.
class HyperConnections {
 public:
  // REQUIRES: outlives the graphs with its nodes, and stays where it is.
  HyperConnections(const StreamsSpec& spec, uint32_t n_embd, float rms_eps)
      : spec_(spec), n_embd_(n_embd), rms_eps_(rms_eps), low_rank_(spec, n_embd, rms_eps) {}
  HyperConnections(const HyperConnections&) = delete;
  HyperConnections& operator=(const HyperConnections&) = delete;

  uint32_t n_weights() const { return spec_.n_weights(); }

  // x [n_embd, rows] -> streams [n_streams * n_embd, rows], all equal.
  ggml_tensor* Begin(ggml_context* ctx, ggml_tensor* x) const;

  enum class Half : uint8_t { kMixer, kFeedForward };
  struct Entered {
    // [n_embd, rows], not normed but with StreamMixing::kLowRank
    ggml_tensor* x = nullptr;
    ggml_tensor* weights = nullptr;  // [n_weights, rows], for Leave()
  };
  // streams -> the input of a half layer.
  Entered Enter(ggml_context* ctx, const LayerTensors& w, Half half, ggml_tensor* streams);

  struct Left {
    ggml_tensor* y = nullptr;        // [n_embd, rows]: the half's result
    ggml_tensor* streams = nullptr;  // [n_streams * n_embd, rows] that came in
    ggml_tensor* weights = nullptr;  // [n_weights, rows] from Enter()
  };
  // -> streams [n_streams * n_embd, rows]. All inputs lie without gaps.
  ggml_tensor* Leave(ggml_context* ctx, const Left& from);

  // streams -> the head's input [n_embd, rows], not normed but with StreamMixing::kLowRank.
  ggml_tensor* End(ggml_context* ctx, const ModelTensors& w, ggml_tensor* streams);

 private:
  bool is_low_rank() const { return spec_.mixing == StreamMixing::kLowRank; }
  Entered EnterLowRank(ggml_context* ctx, const LayerTensors& w, Half half, ggml_tensor* streams);
  // One stream of each row, [n_embd, rows]; a view.
  ggml_tensor* Stream(ggml_context* ctx, ggml_tensor* streams, uint32_t number) const;
  ggml_tensor* Weigh(ggml_context* ctx, ggml_tensor* products, ggml_tensor* scales,
                     ggml_tensor* base);
  void WeighRow(const float* products, const float* scales, const float* base,
                std::span<float> to) const;
  ggml_tensor* Mix(ggml_context* ctx, ggml_tensor* streams, ggml_tensor* weights);

  StreamsSpec spec_;
  uint32_t n_embd_;
  float rms_eps_;
  LowRankStreams low_rank_;  // used for StreamMixing::kLowRank
};

// Makes weights [n][n], of stream s in stream d at [s * n + d], nearly doubly stochastic: a softmax
// of each row, then sums of columns and of rows in turn are made 1, columns last. `eps` is added to
// the softmax and to sums. Source: R. Sinkhorn, P. Knopp, 1967. REQUIRES: n_iterations >= 1.
void MakeDoublyStochastic(uint32_t n, uint32_t n_iterations, float eps, float* weights);

}  // namespace moestro
