// SPDX-License-Identifier: MIT
// The parts of a native engine, how they are put together, and what outlasts them.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/result.h"
#include "compute/fast_cores.h"
#include "compute/team.h"
#include "forward/experts/expert_exec.h"
#include "forward/forward.h"
#include "kit/expert_slots.h"
#include "kit/slot_engine.h"
#include "memory/sequence.h"
#include "native/dense_model.h"
#include "native/device_setup.h"
#include "native/device_ways.h"
#include "native/kept_sequences.h"
#include "native/lossy_run.h"
#include "native/make_slots.h"
#include "native/native_engine.h"
#include "native/numa_placement.h"
#include "native/opened_model.h"
#include "native/step_runner.h"

namespace moestro {

// The parts that outlast the loss of a device, after which all else is put together again: the
// model's directory, the sequences' tokens, counters, and the observers.
struct NativeEngine::Lasting {
  ModelFile model;
  EngineState state;
  std::optional<SequenceTable> sequences = {};
  CheckObserver check_observer = {};
  std::span<const float> exact = {};  // logits for the observer; empty: the step is not checked
  uint64_t checkable_steps = 0;
  KnownWeights weights = {};
};

// The parts in order of construction: later ones borrow from earlier ones. A restart makes all of
// them anew.
struct NativeEngine::Running {
  std::unique_ptr<OpenedModel> opened;
  std::optional<Team> team;
  std::unique_ptr<NumaPlacement> numa;  // null: threads and pages are where the kernel puts them
  std::unique_ptr<FastCores> fast;      // null: threads run on any core
  std::unique_ptr<DeviceSetup> devices;
  std::unique_ptr<DenseModel> dense;
  std::unique_ptr<ExpertSlots> slots;
  std::unique_ptr<DeviceList> joined;  // null: the CPU computes everything
  std::optional<DeviceWays> ways;      // nullopt: no device of this machine is in use
  WayWatch watch;                      // of the tokens that these parts decode
  std::unique_ptr<LossyChoices> lossy;
  std::unique_ptr<LayerDecisions> decisions;
  std::unique_ptr<ExpertExec> experts;
  std::optional<Forward> forward;
  std::unique_ptr<ExactCheck> exact_check;  // null: no step is compared with an exact one
  std::optional<StepFrame> frame;
  std::optional<StepRunner> runner;
  std::optional<LittleFirst> little;  // nullopt: every step is one pass
  std::unique_ptr<KeptSequences> kept;
  EngineFacts facts;
  std::optional<EngineKit> kit;  // made last: not nullopt if no part is missing

  // Calls Allocate() and Load(). Fails as they do.
  Status Start(const EngineOptions& options, Lasting& lasting);
  Status Allocate(const EngineOptions& options, Lasting& lasting);
  Status AllocateFixed(const EngineOptions& options, Lasting& lasting);
  Status LengthenChunk(Lasting& lasting);
  Status CompareWays();
  Status Load(Lasting& lasting);

  Status MakeForward(Lasting& lasting, const ExpertExec::Limits& limits);
  ExpertExec::Limits Limits() const {
    return ExpertExec::LimitsFor(opened->kernels, opened->model.spec.router, opened->plan.chunk);
  }
  FixedBytes FixedFor(const ExpertExec::Limits& limits) const;
  EngineFacts FindFacts() const;
  // Interleaving is off where devices copy experts from their slots. Where every expert has a slot,
  // interleaving always pays in the end.
  InterleaveWhen WhenToInterleave() const {
    if (joined) return InterleaveWhen::kNever;
    return slots->holds_all() ? InterleaveWhen::kThere : InterleaveWhen::kMetAgain;
  }
  // Decisions must not depend on timing.
  bool is_repeatable() const {
    return lossy->are_repeatable() || (joined && joined->has_fixed_costs());
  }
  // Whether a start that failed is tried again on the CPU: nobody has asked for the device.
  bool leaves_devices_for(const Error& why) const {
    return why.code == Errc::kDevice && devices && devices->is_auto() && !devices->empty();
  }
  // After kDevice: whether the CPU goes on with everything.
  bool may_leave_devices() const { return devices->goes_on_if_lost() && !devices->empty(); }
  // Exact results do not depend on the experts in memory. With devices recall is off, since experts
  // are shared out by what memory holds.
  bool may_recall() const {
    const EngineOptions& options = opened->options;
    return options.recall.is_on() && options.has_exact_experts() &&
           opened->model.id.fingerprint != 0 && !joined;
  }
  // Has the next start measure costs again that are of an earlier start and were a fifth off in
  // this run.
  void ForgetOldCosts() const;
  void KeepUses() const {
    if (kit && may_recall() && opened->options.recall.keeps) slots->KeepUses();
  }
};

}  // namespace moestro
