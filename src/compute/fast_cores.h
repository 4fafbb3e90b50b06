// SPDX-License-Identifier: MIT
// Keeps the threads of the team on the fast cores of a machine that has two kinds (big.LITTLE). A
// team waits for its slowest thread at each barrier; a thread that the kernel leaves on a little
// core halves the speed of all. Other threads of the process (readers, clients of a server) stay
// free to run on the little ones, if they were started before.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/result.h"
#include "compute/numa_machine.h"
#include "compute/team.h"

namespace moestro {

class FastCores {
 public:
  // Until destruction the threads of the team run on fast cores, wherever the kernel puts them
  // among these. null: all cores are about as fast, the team has more threads than CPUs are fast
  // (then shares of the work follow from the speeds: a thread that has finished helps others), or
  // the kernel refuses, which is logged. Both must outlive this. Fails as Team::Run().
  static Result<std::unique_ptr<FastCores>> Begin(std::shared_ptr<NumaMachine> machine, Team& team);
  FastCores(const FastCores&) = delete;
  FastCores& operator=(const FastCores&) = delete;
  ~FastCores();

 private:
  FastCores(std::vector<uint32_t> all, std::shared_ptr<NumaMachine> machine, Team& team)
      : all_(std::move(all)), machine_(std::move(machine)), team_(team) {}

  const std::vector<uint32_t> all_;  // on which the threads may run otherwise
  std::shared_ptr<NumaMachine> machine_;
  Team& team_;
};

}  // namespace moestro
