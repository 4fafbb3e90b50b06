// SPDX-License-Identifier: MIT
// A layer's routing turned into work: one job per expert, with the tokens that go there.
#pragma once

#include <cstdint>
#include <vector>

#include "core/ids.h"
#include "core/routing.h"

namespace moestro {

// Pair p is one (token, chosen expert). Pairs of one job are neighbours, so that results of a job
// lie together; pair_of maps them back to router order.
struct ExpertJobs {
  struct Job {
    ExpertId expert;
    uint32_t first_pair = 0;
    uint32_t n_pairs = 0;
  };
  std::vector<Job> jobs;           // each expert once, in order of first appearance
  std::vector<uint32_t> token_of;  // [pair]
  std::vector<uint32_t> pair_of;   // [token][K] -> pair
};

ExpertJobs GroupByExpert(const Routing& routing, uint32_t n_expert);

// The experts of a layer's jobs, in their order.
std::vector<ExpertKey> KeysOf(LayerId layer, const ExpertJobs& jobs);

}  // namespace moestro
