// SPDX-License-Identifier: MIT
#include "engine/expert_jobs.h"

#include <cstddef>

namespace moestro {

ExpertJobs GroupByExpert(const Routing& routing, uint32_t n_expert) {
  ExpertJobs result;
  constexpr uint32_t kNone = ~0U;
  std::vector<uint32_t> job_of(n_expert, kNone);
  for (const ExpertId e : routing.experts) {
    if (job_of[e.value] == kNone) {
      job_of[e.value] = static_cast<uint32_t>(result.jobs.size());
      result.jobs.push_back({.expert = e});
    }
    ++result.jobs[job_of[e.value]].n_pairs;
  }
  uint32_t pairs = 0;
  std::vector<uint32_t> next;
  for (ExpertJobs::Job& job : result.jobs) {
    job.first_pair = pairs;
    next.push_back(pairs);
    pairs += job.n_pairs;
  }
  result.token_of.resize(pairs);
  result.pair_of.resize(pairs);
  for (size_t i = 0; i < routing.experts.size(); ++i) {
    const uint32_t pair = next[job_of[routing.experts[i].value]]++;
    result.token_of[pair] = static_cast<uint32_t>(i / routing.n_used);
    result.pair_of[i] = pair;
  }
  return result;
}

std::vector<ExpertKey> KeysOf(LayerId layer, const ExpertJobs& jobs) {
  std::vector<ExpertKey> keys;
  keys.reserve(jobs.jobs.size());
  for (const ExpertJobs::Job& job : jobs.jobs)
    keys.push_back({.layer = layer, .expert = job.expert});
  return keys;
}

}  // namespace moestro
