// SPDX-License-Identifier: MIT
// Several residual streams that matrices of a low rank mix (StreamMixing::kLowRank), as nodes of a
// graph on the CPU.
//
// Thread rule: functions and graphs on the engine thread; nodes run on all threads of the team.
#pragma once

#include <ggml.h>

#include <cstdint>

#include "compute/row_kernel.h"
#include "core/model_spec.h"

namespace moestro {

// A row's result has the same bits beside any rows, with any number of threads.
class LowRankStreams {
 public:
  // REQUIRES: outlives the graphs with its nodes, and stays where it is.
  LowRankStreams(const StreamsSpec& spec, uint32_t n_embd, float rms_eps)
      : spec_(spec),
        n_embd_(n_embd),
        norm_{.kernel = RowKernel::ForThisMachine(), .eps = rms_eps} {}
  LowRankStreams(const LowRankStreams&) = delete;
  LowRankStreams& operator=(const LowRankStreams&) = delete;

  struct Weights {
    ggml_tensor* norm = nullptr;    // F32 [n_streams * n_embd]
    ggml_tensor* down = nullptr;    // [n_streams * n_embd, n_low_rank]
    ggml_tensor* up = nullptr;      // [n_low_rank, n_streams * n_embd]
    ggml_tensor* inject = nullptr;  // [n_streams * n_embd, n_streams]; null: the head's mix
  };
  struct Entered {
    ggml_tensor* x = nullptr;        // [n_embd, rows]
    ggml_tensor* weights = nullptr;  // [n_streams, rows] of results; null without `inject`
  };
  // streams [n_streams * n_embd, rows] -> the input of a half layer, or of the head.
  Entered Enter(ggml_context* ctx, const Weights& w, ggml_tensor* streams);
  // Each stream, plus its weight times y [n_embd, rows]. All inputs lie without gaps.
  ggml_tensor* Leave(ggml_context* ctx, ggml_tensor* y, ggml_tensor* streams, ggml_tensor* weights);

 private:
  ggml_tensor* Normed(ggml_context* ctx, ggml_tensor* streams, ggml_tensor* weight);
  ggml_tensor* Opened(ggml_context* ctx, ggml_tensor* low);
  ggml_tensor* Weighed(ggml_context* ctx, ggml_tensor* products);
  ggml_tensor* Mean(ggml_context* ctx, ggml_tensor* normed, ggml_tensor* gates);
  float share() const { return 1.0F / static_cast<float>(spec_.n_streams); }

  StreamsSpec spec_;
  uint32_t n_embd_;
  RowNorm norm_;
};

}  // namespace moestro
