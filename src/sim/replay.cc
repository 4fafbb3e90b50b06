// SPDX-License-Identifier: MIT
#include "sim/replay.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/text.h"
#include "core/ids.h"
#include "decide/ahead/predictors.h"
#include "decide/slots/first_experts.h"
#include "sim/limits.h"
#include "sim/player.h"
#include "sim/sim_memory.h"

namespace moestro {

size_t TokensOfStep(const Trace& trace, size_t first, const StepSize& size) {
  const bool is_source = trace.is_source(first);
  size_t n = 1;
  while (first + n < trace.tokens() && trace.joins_step(first + n) &&
         trace.is_source(first + n) == is_source) {
    ++n;
  }
  const Phase phase = trace.phase(first);
  if (n > 1 || (phase == Phase::kPrefill && trace.info().has_prompt_steps)) return n;
  const size_t of_phase = phase == Phase::kPrefill ? size.prefill_chunk : size.rows;
  const size_t most = is_source ? trace.tokens() : of_phase;
  const auto follows = [&](size_t t) {
    return t < trace.tokens() && !trace.starts_sequence(t) && trace.phase(t) == phase &&
           trace.is_source(t) == is_source;
  };
  while (n < most && follows(first + n)) ++n;
  return n;
}

bool HasStepsOfRows(const Trace& trace) {
  for (size_t t = 0; t < trace.tokens(); ++t) {
    if (trace.joins_step(t) && trace.phase(t) == Phase::kDecode) return true;
  }
  return false;
}

namespace {

// One table for each pool of the own copies and one for low ones, each with a policy of its own.
Result<std::vector<SlotTable>> MakeTables(const Trace& trace, const ReplayOptions& options) {
  const MoeShape& moe = trace.info().shape();
  TRY(std::vector<uint64_t> slots, SlotsOfPools(trace.info(), options));
  if (options.low_bytes > 0) slots.push_back(options.low_slots);
  std::vector<SlotTable> tables;
  for (const uint64_t n : slots) {
    if (n < moe.n_used) {
      return Fail(Errc::kUsage,
                  "{} slots do not hold the {} experts that a token uses in one layer", n,
                  moe.n_used);
    }
    std::unique_ptr<Policy> policy;
    if (options.policy.name == "belady") {
      policy = std::make_unique<BeladyPolicy>(trace);
    } else {
      TRY(policy, MakePolicy(options.policy));
    }
    const PolicyShape shape = PolicyShape::Of(n, moe);
    tables.emplace_back(shape, std::move(policy));
  }
  return tables;
}

uint64_t SlotsOfAll(std::span<const SlotTable> tables) {
  uint64_t slots = 0;
  for (const SlotTable& table : tables) slots += table.slots();
  return slots;
}

uint64_t SlotsOf(const LaneMachine& lanes, size_t device) {
  return device < lanes.device_slots.size() ? lanes.device_slots[device] : 0;
}

bool IsSettled(const LaneMachine& lanes, size_t device) {
  return device < lanes.is_settled.size() && lanes.is_settled[device];
}

// The shares of the devices whose experts stay the same. kept: experts that memory holds.
std::vector<std::vector<ExpertKey>> SettledOf(const MoeShape& shape, const LaneMachine& lanes,
                                              uint64_t kept) {
  const size_t devices = lanes.model.devices.size();
  std::vector<std::vector<ExpertKey>> settled(devices);
  std::vector<uint64_t> room;
  for (size_t d = 0; d < devices; ++d) {
    if (IsSettled(lanes, d)) room.push_back(SlotsOf(lanes, d));
  }
  if (room.empty() || lanes.mode == PlaceMode::kCpu) return settled;
  const std::vector<uint32_t> n_experts(shape.n_layer, shape.n_expert);
  auto shares = SharesOf(n_experts, lanes.first, kept, room);
  size_t next = 0;
  for (size_t d = 0; d < devices; ++d) {
    if (IsSettled(lanes, d)) settled[d] = std::move(shares[next++]);
  }
  return settled;
}

// `tables`: memory's slots by pool.
Tiers TiersOf(const LaneMachine& lanes, std::span<const SlotTable> tables, const SimPools& pools) {
  if (lanes.tiers) return *lanes.tiers;
  bool all_settled = true;
  for (size_t d = 0; d < lanes.model.devices.size(); ++d) all_settled &= IsSettled(lanes, d);
  return all_settled ? Tiers::kInclusive
                     : TiersFor(SlotsOfAll(tables.first(pools.own())), pools.n_experts());
}

// Experts in memory at the start, first those that the devices lack.
std::vector<ExpertKey> MemoryFirst(const MoeShape& shape, const LaneMachine& lanes,
                                   const std::vector<std::vector<ExpertKey>>& settled,
                                   Tiers tiers) {
  uint64_t on_devices = 0;
  for (size_t d = 0; d < lanes.model.devices.size() && lanes.mode != PlaceMode::kCpu; ++d) {
    if (!IsSettled(lanes, d)) on_devices += SlotsOf(lanes, d);
  }
  const std::span<const ExpertKey> first(lanes.first);
  std::vector<ExpertKey> there(
      first.begin(),
      first.begin() + static_cast<ptrdiff_t>(std::min<size_t>(on_devices, first.size())));
  for (const std::vector<ExpertKey>& share : settled) there.append_range(share);
  std::unordered_set<ExpertKey> listed(there.begin(), there.end());
  std::vector<ExpertKey> keys;
  const auto list = [&](ExpertKey key) {
    if (listed.insert(key).second) keys.push_back(key);
  };
  std::ranges::for_each(first, list);
  std::ranges::for_each(AllExperts(shape), list);
  if (tiers == Tiers::kInclusive) keys.append_range(there);
  return keys;
}

// Slots of the devices, each with a policy of its own, and memory as plans see it, as full as
// memory is. REQUIRES: options.lanes.
Result<SimTables> MakeDeviceTables(const Trace& trace, const ReplayOptions& options,
                                   const SimPools& pools) {
  const MoeShape& moe = trace.info().shape();
  const LaneMachine& lanes = *options.lanes;
  const size_t copies = options.low_bytes > 0 ? 2 : 1;
  SimTables tables;
  for (size_t d = 0; d < lanes.model.devices.size(); ++d) {
    const uint64_t n = SlotsOf(lanes, d);
    auto& its = tables.devices.emplace_back(copies);
    if (n == 0 || lanes.mode == PlaceMode::kCpu) continue;
    for (std::optional<SlotTable>& table : its) {
      TRY(std::unique_ptr<Policy> policy, MakePolicy(options.policy));
      const PolicyShape shape = PolicyShape::Of(n, moe);
      table.emplace(shape, std::move(policy));
    }
  }
  TRY(tables.model, MakeTables(trace, options));
  tables.settled = SettledOf(moe, lanes, SlotsOfAll(tables.model));
  tables.tiers = TiersOf(lanes, tables.model, pools);
  if (lanes.fills_memory) {
    FillSlots(tables.model, pools, MemoryFirst(moe, lanes, tables.settled, tables.tiers));
  }
  return tables;
}

Status CheckLanes(const Trace& trace, const ReplayOptions& options) {
  if (options.step.rows > 1 && HasStepsOfRows(trace)) {
    return Fail(Errc::kUsage, "the trace has steps of several rows of its own; {} cannot be added",
                options.step.rows);
  }
  if (!options.lanes) return {};
  const LaneMachine& lanes = *options.lanes;
  if (lanes.device_slots.size() > lanes.model.devices.size()) {
    return Fail(Errc::kUsage, "slots on {} devices, and the machine has {}",
                lanes.device_slots.size(), lanes.model.devices.size());
  }
  if (options.policy.name == "belady") {
    return Fail(Errc::kUsage,
                "belady knows which experts come, not which of them memory is asked "
                "for beside devices");
  }
  return {};
}

// Whether every expert of a pass runs in its own copy.
bool is_exact(const ReplayOptions& options) {
  const bool reads_all = !options.has_little_pass() || options.little.misses == Misses::kRead;
  return options.lossy.is_exact(options.low_bytes > 0) && reads_all;
}

Status CheckLittleReplay(const TraceInfo& info, const ReplayOptions& options) {
  if (!options.little.is_on()) return {};
  TRY(const uint32_t used, CheckLittle(options.little, info.shape().n_used, options.low_bytes > 0));
  if (info.little != used) {
    return Fail(Errc::kUsage, "{}; record {} with 'moestro trace --little {}'",
                info.little == 0 ? std::string("the trace holds no little pass")
                                 : Format("the trace's little pass is of {} experts, not of {}",
                                          info.little, used),
                info.little == 0 ? "one" : "another", used);
  }
  for (const std::string& name : {options.policy.name, options.predictor.name}) {
    if (name == "belady" || name == "oracle") {
      return Fail(Errc::kUsage, "{} knows which experts come, not which passes need them", name);
    }
  }
  if (options.lossy.prefer_resident > 0.0) {
    return Fail(Errc::kUsage,
                "preferring residents needs to know who else could run, which a trace does not say "
                "of a little pass");
  }
  return {};
}

Status CheckLossyReplay(const TraceInfo& info, const ReplayOptions& options) {
  TRY_STATUS(CheckLossy(options.lossy, options.low_bytes > 0));
  if (is_exact(options)) return {};
  if (options.policy.name == "belady") {
    return Fail(Errc::kUsage, "belady knows which experts come, not which of them are left out");
  }
  if (!info.has_weights) {
    return Fail(Errc::kUsage,
                "what is unimportant follows from the router's weights, which this trace does not "
                "hold; record it with 'moestro trace'");
  }
  if (options.lossy.prefer_resident > 0.0 && !info.has_candidates) {
    return Fail(Errc::kUsage,
                "preferring residents needs to know who else could run; record the trace with "
                "'moestro trace --candidates'");
  }
  return {};
}

}  // namespace

Result<ReplayResult> Replay(const Trace& trace, const ReplayOptions& options) {
  const TraceInfo& info = trace.info();
  TRY_STATUS(CheckLanes(trace, options));
  TRY_STATUS(CheckLittleReplay(info, options));
  TRY_STATUS(CheckLossyReplay(info, options));
  TRY(std::vector<SlotTable> tables, MakeTables(trace, options));
  std::unique_ptr<Predictor> predictor;
  if (options.predictor.name == "oracle") {
    predictor = std::make_unique<OraclePredictor>(trace);
  } else {
    TRY(predictor, MakePredictor(options.predictor));
  }
  const bool needs_more = options.depth > info.depth || info.depth == 0;
  if (predictor->wants_ahead() && needs_more) {
    return Fail(Errc::kUsage,
                "the trace predicts {} layers ahead, '{}' needs {}: record it with 'moestro trace "
                "--prefetch {}'",
                info.depth, options.predictor.name, std::max(options.depth, 1U),
                std::max(options.depth, 1U));
  }
  const bool has_low = options.low_bytes > 0;
  const SimPools pools(info, options);
  if (options.lanes && options.lanes->fills_memory) {
    const LaneMachine& lanes = *options.lanes;
    const auto settled = SettledOf(info.shape(), lanes, SlotsOfAll(tables));
    FillSlots(tables, pools,
              MemoryFirst(info.shape(), lanes, settled, TiersOf(lanes, tables, pools)));
  }
  Player player(trace, std::move(tables), options, pools);
  if (options.lanes) {
    TRY(SimTables beside, MakeDeviceTables(trace, options, pools));
    player.AddDevices(std::move(beside));
  }
  if (is_exact(options)) return player.Play(std::move(predictor));

  RouterSpec router = options.router.value_or(RouterSpec{});
  router.n_expert = info.shape().n_expert;
  router.n_used = info.shape().n_used;
  LossyOptions lossy = options.lossy;
  if (lossy.is_exact(has_low)) lossy.importance = LossyOptions().importance;  // unused when exact
  LossyChooser chooser(lossy, router, has_low, options.norms);
  std::optional<ResidentModel> choices;
  if (options.lossy.is_reproducible) {
    TRY(std::vector<SlotTable> models, MakeTables(trace, options));
    choices.emplace(std::move(models), [&pools](ExpertKey key) { return pools.of(key); });
  }
  Upgrades upgrades(info.shape());
  player.MakeLossy({.chooser = &chooser,
                    .choices = choices ? &*choices : nullptr,
                    .upgrades = options.lossy.upgrades && has_low ? &upgrades : nullptr});
  return player.Play(std::move(predictor));
}

namespace {

// Replays every size of memory and every way to place experts, with `device_slots` and the other
// options.
Status ReplayModes(const Trace& trace, const Sweep& sweep, uint64_t device_slots,
                   ReplayOptions options, std::vector<SweepLine>& lines) {
  const double experts = trace.info().shape().experts();
  const std::vector<PlaceMode> modes = options.lanes ? sweep.modes : std::vector{PlaceMode::kAuto};
  for (const uint64_t slots : sweep.slots) {
    options.slots = slots;
    for (const PlaceMode mode : modes) {
      if (options.lanes) options.lanes->mode = mode;
      TRY(ReplayResult result, Replay(trace, options));
      lines.push_back({.policy = options.policy.name,
                       .slots = slots,
                       .percent = 100.0 * static_cast<double>(slots) / experts,
                       .result = std::move(result),
                       .has_lanes = options.lanes.has_value(),
                       .mode = mode,
                       .rows = static_cast<uint32_t>(options.step.rows),
                       .device_slots = device_slots});
    }
  }
  return {};
}

}  // namespace

Result<std::vector<SweepLine>> ReplayAll(const Trace& trace, const Sweep& sweep) {
  std::vector<SweepLine> lines;
  ReplayOptions options = sweep.options;
  for (const PolicyChoice& policy : sweep.policies) {
    options.policy = policy;
    if (!options.lanes) {
      TRY_STATUS(ReplayModes(trace, sweep, 0, options, lines));
      continue;
    }
    for (const uint32_t rows : sweep.rows) {
      options.step.rows = rows;
      for (const uint64_t on_device : sweep.device_slots) {
        options.lanes->device_slots.assign(options.lanes->model.devices.size(), on_device);
        TRY_STATUS(ReplayModes(trace, sweep, on_device, options, lines));
      }
    }
  }
  return lines;
}

}  // namespace moestro
