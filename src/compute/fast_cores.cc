// SPDX-License-Identifier: MIT
#include "compute/fast_cores.h"

#include <atomic>
#include <cstring>
#include <span>

#include "base/terminal.h"

namespace moestro {
namespace {

// Moves all threads of a team. An errno of any of them; 0: all have moved.
Result<int> MoveTeam(Team& team, NumaMachine& machine, std::span<const uint32_t> cpus) {
  std::atomic<int> error{0};  // read after the team has met
  TRY_STATUS(team.Run([&](int /*thread*/, int /*n_threads*/) {
    if (const int failed = machine.RunOn(cpus); failed != 0) error = failed;
  }));
  return error.load();
}

}  // namespace

Result<std::unique_ptr<FastCores>> FastCores::Begin(std::shared_ptr<NumaMachine> machine,
                                                    Team& team) {
  if (machine == nullptr) machine = std::make_shared<KernelNumaMachine>();
  CpuKinds cpus = machine->cpus();
  if (cpus.fast.empty() || team.threads() > cpus.fast.size()) return nullptr;
  std::unique_ptr<FastCores> part(new FastCores(std::move(cpus.all), machine, team));
  TRY(const int error, MoveTeam(team, *machine, cpus.fast));
  if (error != 0) {
    LogInfo("threads are not kept on the fast cores: {}", std::strerror(error));
    return nullptr;
  }
  LogInfo("{} threads on {} fast CPUs of {}", team.threads(), cpus.fast.size(), part->all_.size());
  return part;
}

FastCores::~FastCores() {
  const Result<int> error = MoveTeam(team_, *machine_, all_);
  if (!error) LogInfo("threads stay on the fast cores: {}", error.error().message);
}

}  // namespace moestro
