// SPDX-License-Identifier: MIT
// Measures how fast the team multiplies weights of a type, without a model.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "compute/team.h"
#include "core/machine.h"

namespace moestro {

// Bandwidth of memory that is only read: the denominator of "percent of the limit".

// Bytes per second of reading `memory` by a plain loop on every thread of the team, each thread its
// own part: the best of a few passes in about 0.2 s. Each pass reads up to 256 MiB, other bytes
// than the pass before where `memory` has enough. Allocates no memory. Memory that fits a cache is
// read from the cache. No thread may write to `memory`. kInvalidRequest: `memory` is empty.
Result<double> ProbeReadBandwidth(Team& team, std::span<const std::byte> memory);

// Rates of types on average over all rounds, as a run gets them, not the best of a quiet moment. A
// shared machine gives different rates from one second to the next, so rounds are best spread over
// some time.
class KernelProbe {
 public:
  // types: ggml's names. Types that the CPU does not multiply are left out. `team` must outlive
  // this. kInvalidRequest: ggml has no type of that name; kNoMemory.
  static Result<KernelProbe> Create(Team& team, const std::vector<std::string>& types);
  KernelProbe(KernelProbe&& other) noexcept;
  KernelProbe& operator=(KernelProbe&&) = delete;
  ~KernelProbe();

  // Takes about 0.15 s for each type, in kRateMemory bytes of memory beside the activations.
  Status Round();
  // REQUIRES: Round() has run.
  std::vector<KernelRate> rates() const;

  static constexpr size_t kRateMemory = size_t{192} << 20;

 private:
  struct State;
  explicit KernelProbe(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Seconds in which all threads get empty work and finish it, while they are held together as in a
// decode step: a median. kNoMemory.
Result<double> ProbeBarrier(Team& team);

}  // namespace moestro
