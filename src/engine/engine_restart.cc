// SPDX-License-Identifier: MIT
// The first device is lost in the middle of a run, and with it keys and values: the engine is put
// together again for the CPU alone, and the sequences' tokens are computed again.
#include <chrono>
#include <utility>

#include "base/log.h"
#include "engine/engine_impl.h"

namespace moestro {

Status Engine::Impl::LeaveDevices(const Error& why) {
  const auto start = std::chrono::steady_clock::now();
  LogWarning("{} is lost ({}); starting again on the CPU", gpus.front()->device.info().name,
             why.message);
  Watchers watchers = forward->watchers();
  const Status started = StartAgain();
  if (!started) {
    closed = Error{
        .code = Errc::kDevice,
        .message = "the device is lost, and the CPU cannot go on: " + started.error().message};
    return std::unexpected(*closed);
  }
  forward->watchers() = std::move(watchers);
  if (request_observer) residency->SetObserver(request_observer);
  TRY(const size_t tokens, ComputeSequencesAgain());
  LogWarning("the CPU goes on; {} tokens of {} sequences were computed again, in {:.1f} s in all",
             tokens, sequences->ids().size(), SecondsSince(start));
  return {};
}

// Everything but the model's directory and the sequences, the last made first.
Status Engine::Impl::StartAgain() {
  forward.reset();
  experts.reset();
  exact_check.reset();
  protocol.reset();
  upgrades.reset();
  choices.reset();
  chooser.reset();
  prefetched.reset();
  planner.reset();
  device_side.reset();
  device_tier.reset();
  device_first.clear();
  device_set.reset();
  residency.reset();
  slot_memory.reset();
  device_experts.clear();
  graph.reset();
  look_ahead_routers = {};
  kv = {};
  buffers = {};
  dense = {};
  gpus.clear();
  memory = {};
  team.reset();
  queue.reset();
  reader.reset();
  device.reset();
  low.reset();
  EngineOptions again = options;
  again.device = {.name = "cpu"};
  TRY_STATUS(Prepare(again));
  TRY_STATUS(Allocate());
  return Load();
}

Result<size_t> Engine::Impl::ComputeSequencesAgain() {
  BeginSequence();
  size_t tokens = 0;
  for (const SequenceId id : sequences->ids()) {
    Batch batch;
    for (const Token token : sequences->Find(id)->tokens) {
      batch.rows.push_back({.sequence = id,
                            .position = static_cast<uint32_t>(batch.size()),
                            .token = token,
                            .kind = RowKind::kPrompt});
    }
    tokens += batch.size();
    if (batch.rows.empty()) continue;
    PhaseStats not_counted;
    TRY_STATUS(Counted(not_counted, [&] { return Compute(batch, {}); }));
  }
  return tokens;
}

}  // namespace moestro
