// SPDX-License-Identifier: MIT
#include "engine/forward.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "decide/router.h"

namespace moestro {

Status Forward::CheckStop() {
  if (!stop_.exchange(false)) return {};
  return Fail(Errc::kInterrupted, "stopped on request");
}

Status Forward::Attend(LayerId layer, const Batch& batch, uint32_t look_ahead) {
  const auto start = std::chrono::steady_clock::now();
  TRY_STATUS(parts_.graph.Attend(layer, batch, look_ahead));
  dense_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return {};
}

std::span<const float> Forward::router_logits(uint32_t n_tokens) const {
  return {parts_.buffers.router(), size_t{n_tokens} * parts_.spec.router.n_expert};
}

std::vector<ExpertId> Forward::RouteAhead(LayerId layer, uint32_t n_tokens,
                                          uint32_t look_ahead) const {
  const uint32_t layers = std::min(look_ahead, parts_.spec.n_expert_layers() - 1 - layer.value);
  const RouterSpec& router = parts_.spec.router;
  const size_t logits = size_t{n_tokens} * router.n_expert;  // of one layer
  std::vector<ExpertId> experts;
  for (uint32_t i = 0; i < layers; ++i) {
    experts.append_range(Route(router, {parts_.buffers.ahead() + i * logits, logits},
                               parts_.kernels[layer.value + 1 + i].selection_bias)
                             .experts);
  }
  return experts;
}

void Forward::ResidentFirst(LayerId layer, ExpertJobs& jobs) const {
  std::ranges::stable_partition(jobs.jobs, [&](const ExpertJobs::Job& job) {
    return parts_.residency.contains({.layer = layer, .expert = job.expert});
  });
}

ExpertRows Forward::rows() const {
  return {.ffn_in = parts_.buffers.ffn_in(),
          .shared = parts_.spec.n_ff_shared > 0 ? parts_.buffers.shared() : nullptr,
          .residual = parts_.buffers.residual(),
          .hidden = parts_.buffers.hidden()};
}

}  // namespace moestro
