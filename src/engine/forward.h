// SPDX-License-Identifier: MIT
// The main path: tokens in, logits in StepBuffers out. decode_step.cc is the file to read first.
//
// Thread rule: the engine thread; RequestStop() from anywhere.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/model_spec.h"
#include "core/routing.h"
#include "engine/expert_exec.h"
#include "engine/expert_jobs.h"
#include "engine/observers.h"
#include "graph/layer_graph.h"
#include "residency/prefetcher.h"
#include "residency/residency.h"

namespace moestro {

class Forward {
 public:
  // Everything is borrowed and must outlive this; kernels has one entry per layer with experts.
  struct Parts {
    const ModelSpec& spec;
    LayerGraph& graph;
    StepBuffers& buffers;
    Residency& residency;
    Prefetcher& prefetcher;
    ExpertExec& experts;
    std::span<const LayerKernels> kernels;
  };
  explicit Forward(const Parts& parts) : parts_(parts) {}

  // One token at `position`; its logits are row 0 of buffers.logits(). kIo, kInterrupted: nothing
  // but the cells at `position` has changed.
  Status Decode(Token token, uint32_t position);
  // Consecutive tokens from `first` on, at most a chunk; leaves the last layer's output in
  // buffers.hidden(). `layer_done` is called after every layer.
  Status Prefill(std::span<const Token> tokens, uint32_t first,
                 const std::function<void(uint32_t layers_done)>& layer_done);

  // Seconds of evaluating the layers' dense parts, since creation.
  double dense_seconds() const { return dense_seconds_; }

  // Called with every layer's routing as soon as it is known, with what `look_ahead` later routers
  // would say; empty: nobody. REQUIRES: look_ahead is within the limit of the buffers.
  void SetRouteObserver(RouteObserver observer, uint32_t look_ahead) {
    observer_ = std::move(observer);
    observed_ahead_ = observer_ ? look_ahead : 0;
  }

  // The next layer, of this call or of a later one, fails with kInterrupted and takes the request
  // back: every request ends one call.
  void RequestStop() { stop_.store(true); }

 private:
  Status CheckStop();
  Status Attend(LayerId layer, const Batch& batch, uint32_t look_ahead);
  std::span<const float> router_logits(uint32_t n_tokens) const;
  ExpertRows rows() const;
  // What the routers of the `look_ahead` layers after `layer` choose: [distance - 1][token][K].
  std::vector<ExpertId> RouteAhead(LayerId layer, uint32_t n_tokens, uint32_t look_ahead) const;
  void Observe(const SeenRouting& seen) const {
    if (observer_) observer_(seen);
  }
  // Requests of one layer are made in the order of its jobs: what is there is pinned before what
  // is absent needs slots, and keeps the team busy while that arrives.
  void ResidentFirst(LayerId layer, ExpertJobs& jobs) const;

  Parts parts_;
  RouteObserver observer_;
  uint32_t observed_ahead_ = 0;
  double dense_seconds_ = 0.0;
  std::atomic<bool> stop_{false};
};

}  // namespace moestro
