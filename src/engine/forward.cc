// SPDX-License-Identifier: MIT
#include "engine/forward.h"

#include <algorithm>
#include <cstddef>

namespace moestro {

Status Forward::CheckStop() const {
  if (!stop_.load()) return {};
  return Fail(Errc::kInterrupted, "stopped on request");
}

std::span<const float> Forward::router_logits(uint32_t n_tokens) const {
  return {parts_.buffers.router(), size_t{n_tokens} * parts_.spec.router.n_expert};
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
