// SPDX-License-Identifier: MIT
// How fast the team multiplies weights of a type, without a model.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/machine_rates.h"
#include "device/team.h"

namespace moestro {

// Rates of types on average over all rounds: what a run gets, not what a quiet moment gives. A
// machine that others share gives different rates from one second to the next, so rounds are best
// spread over some time.
class KernelProbe {
 public:
  // By ggml's names. Types that the CPU does not multiply are left out. `team` outlives it.
  // kInvalidRequest: a name that ggml does not know; kNoMemory.
  static Result<KernelProbe> Create(Team& team, const std::vector<std::string>& types);
  KernelProbe(KernelProbe&& other) noexcept;
  KernelProbe& operator=(KernelProbe&&) = delete;
  ~KernelProbe();

  // About 0.15 s for each type, in kRateMemory bytes of memory beside the activations.
  Status Round();
  // REQUIRES: there was a round.
  std::vector<KernelRate> rates() const;

  static constexpr size_t kRateMemory = size_t{192} << 20;

 private:
  struct State;
  explicit KernelProbe(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Seconds in which all threads get work that is nothing and have done it, while they are held
// together as in a decode step: a median. kNoMemory.
Result<double> ProbeBarrier(Team& team);

}  // namespace moestro
