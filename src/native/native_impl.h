// SPDX-License-Identifier: MIT
// What an Engine is made of. engine.cc puts it together, engine_run.cc runs it; no other file may
// include this.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/file_watch.h"
#include "base/result.h"
#include "base/stop_signal.h"
#include "core/expert_catalog.h"
#include "decide/ahead/predictor.h"
#include "decide/ahead/prefetch_planner.h"
#include "decide/devices/device_tier.h"
#include "decide/layer/layer_protocol.h"
#include "decide/layer/little_judge.h"
#include "decide/layer/lossy_chooser.h"
#include "decide/slots/resident_model.h"
#include "device/cpu_device.h"
#include "device/devices.h"
#include "device/host_memory.h"
#include "device/team.h"
#include "forward/dense/layer_graph.h"
#include "forward/dense/look_ahead.h"
#include "forward/experts/device_experts.h"
#include "forward/experts/device_probe.h"
#include "forward/experts/device_set.h"
#include "forward/experts/device_side.h"
#include "forward/experts/expert_exec.h"
#include "forward/forward.h"
#include "learned/policy_source.h"
#include "memory/kv_choices.h"
#include "memory/sequence.h"
#include "memory/sequence_file.h"
#include "model/low_copies.h"
#include "model/model_file.h"
#include "native/dense_loader.h"
#include "native/dense_reads.h"
#include "native/exact_check.h"
#include "native/native_engine.h"
#include "native/plan/memory_plan.h"
#include "residency/prefetched_experts.h"
#include "residency/residency.h"
#include "store/block_reader.h"
#include "store/extent_reader.h"
#include "store/read_queue.h"

namespace moestro {

inline double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Where counters stood when a phase's work began.
struct PhaseCount {
  PhaseStats* phase = nullptr;
  ResidencyStats residency;
  LossCounts lost;
  uint64_t touched = 0;
  double waited = 0.0;
  std::chrono::steady_clock::time_point start;
};

// A device beside the CPU that is in use.
struct UsedDevice {
  ComputeDevice device;
  DevicePlan plan;
  uint64_t vram = 0;                 // bytes that may be taken there
  std::vector<bool> computes = {};   // by form
  std::vector<uint64_t> slots = {};  // by form
};

// What is still there when a device is lost and all else is put together again: the model's
// directory, the sequences' tokens, what was counted and who wants to be told.
struct NativeEngine::Lasting {
  ModelFile model;
  std::optional<SequenceTable> sequences = {};
  StopSignal stop = {};
  std::optional<Error> closed = {};  // why no step can be computed any more; parts may be missing
  SlotTable::Observer request_observer = {};
  CheckObserver check_observer = {};
  uint64_t checkable_steps = 0;
  RunStats stats = {};
  Progress progress = {};
  const Interlude* interlude = nullptr;  // of the step under way
  bool is_aside = false;                 // that step waits while others are computed
  // Of the model's weights, see model/weights_id.h: nullopt until it is known, or needed.
  std::optional<uint64_t> weights_id = {};
  std::optional<uint64_t> dense_sum = {};  // its part of the dense tensors
};

// Members in order of construction: later ones borrow from earlier ones. A restart makes all of
// them anew.
struct NativeEngine::Impl {
  // What outlasts this, by its own names.
  Lasting& lasting;
  ModelFile& model = lasting.model;
  std::optional<SequenceTable>& sequences = lasting.sequences;
  StopSignal& stop = lasting.stop;
  SlotTable::Observer& request_observer = lasting.request_observer;
  CheckObserver& check_observer = lasting.check_observer;
  uint64_t& checkable_steps = lasting.checkable_steps;
  RunStats& stats = lasting.stats;
  Progress& progress = lasting.progress;

  EngineOptions options;
  PolicySource policy_source;
  PolicyChoice policy;  // in use
  std::optional<LowCopies> low;
  std::optional<uint64_t> low_id;  // of their weights, once they are known to be the model's
  std::string kv_choices;          // KvChoices::text() of the run as it started
  ExpertCatalog catalog;
  std::vector<FormKernels> kernels;    // by form
  std::vector<LayerForm> layer_forms;  // by layer with experts
  std::optional<CpuDevice> device;
  std::unique_ptr<BlockReader> reader;
  FileWatch watch;  // over what it reads
  std::unique_ptr<ReadQueue> queue;
  // Devices beside the CPU, as plans number them; the dense part may be on the first.
  std::vector<std::unique_ptr<UsedDevice>> gpus;
  std::vector<ExpertKey> device_first;  // who gets slots there before the first token
  DensePlan dense;
  DenseReads dense_reads;
  ModelTensors tensors;
  StepBuffers buffers;
  MemoryShape remembers;  // what the layers do
  KvCache kv;
  StateStore states;
  LookAheadRouters look_ahead_routers;
  std::unique_ptr<LayerGraph> graph;
  std::optional<Team> team;
  std::unique_ptr<Residency> residency;
  std::vector<std::unique_ptr<DeviceExperts>> device_experts;  // [device]
  std::optional<DeviceSet> device_set;
  std::unique_ptr<DeviceTier> device_tier;
  std::unique_ptr<DeviceSide> device_side;
  std::optional<HostMemorySource> slot_memory;  // of memory's slots; nullopt: plain
  std::optional<PrefetchPlanner> planner;
  std::optional<PrefetchedExperts> prefetched;
  std::optional<LossyChooser> chooser;
  std::optional<ResidentModel> choices;  // of a lossy engine that is reproducible
  std::optional<Upgrades> upgrades;      // if they are wanted
  std::optional<LayerProtocol> protocol;
  std::unique_ptr<ExpertExec> experts;
  std::optional<Forward> forward;
  LittleStep little;                        // the first pass; off: there is none
  std::optional<LittleJudge> judge;         // of what it leaves
  std::unique_ptr<ExactCheck> exact_check;  // of a lossy engine, if asked for
  Watchers nobody;

  MemoryPlan memory;
  std::vector<uint64_t> slots;  // by pool
  uint32_t n_ctx = 0;
  uint32_t n_cells = 0;  // of the KV cache
  uint32_t chunk = 0;
  uint32_t logits_rows = 1;
  PredictorChoice predictor_choice;
  uint32_t look_ahead = 0;
  EngineFacts facts;
  double look_ahead_share = 0.0;   // of the dense part's time that looking ahead takes
  uint64_t dense_touched = 0;      // bytes, by all passes so far
  PhaseCount* counting = nullptr;  // the innermost under way

  explicit Impl(Lasting& outlasts) : lasting(outlasts) {}

  EngineFacts FindFacts() const;
  ExpertPools PoolsOfOwnCopies() const;
  LaneRatios CurrentLaneRatios() const;
  // All of the three below. Fails as they do.
  Status Start(const EngineOptions& requested);
  Status Prepare(const EngineOptions& requested);
  Status Allocate();
  InterleaveWhen WhenToInterleave() const;
  FixedBytes FixedFor(const ExpertExec::Limits& limits) const;
  // The reader's, as slots are planned for it.
  uint64_t planned_block() const { return std::max(reader->block(), kPlannedBlock); }
  Result<PredictorChoice> ChoosePredictor() const;
  Status OpenLow();
  Status LoadDenseWeights();
  Status CheckLowWeights();
  Result<uint64_t> Weights();
  Result<std::string> FindChoices() const;
  Status AddDeviceChoices(KvChoices& all) const;
  bool DependsOnRows() const;
  std::vector<std::string> AllPaths() const;  // of the model and its low copies
  FileWatch WatchOverFiles() const;           // those
  Status LookAtFiles();
  Status PrepareLossy();
  // What is decided must not depend on timing.
  bool is_repeatable() const {
    return choices || (device_tier && !options.device.latency_model.empty());
  }
  bool checks() const { return options.check_every > 0 && !options.has_exact_experts(); }
  Status PrepareLittle();
  Status PrepareCheck();
  ResidentModel MakeResidentModel() const;
  Status PreparePrefetch(const PlannedMemory& planned);
  Status PrepareDense();
  Status BuildDense(const ComputeDevice* there);
  Status CheckDenseRoom(const ComputeDevice& there) const;
  Status TryDense(const ComputeDevice& there) const;
  Status TryAttention(const ComputeDevice& there, const AttentionSpec& attention) const;
  uint64_t DenseBytesOn(const ComputeDevice& there) const;
  StepLimits step_limits() const {
    return {.chunk = chunk, .logits_rows = logits_rows, .look_ahead = look_ahead};
  }
  bool is_auto() const { return options.device.name == "auto"; }
  Status PrepareDevices(Status (Impl::*prepare)(size_t index));
  // A device that is lost does not end the run.
  bool goes_on_if_lost() const { return is_auto() || options.device.goes_on_if_lost; }
  // After kDevice: whether the CPU goes on with everything.
  bool may_leave_devices() const { return goes_on_if_lost() && !gpus.empty() && !lasting.is_aside; }
  Result<size_t> ComputeSequencesAgain();
  Status OpenDevices();
  Status OpenDevice(const DeviceInfo& info, uint64_t vram);
  Status AllocateSlots(size_t index);
  Status TryDevice(size_t index);
  Result<double> TryForm(size_t index, uint32_t form, const ExtentReader& file, bool has_costs);
  Status FindCosts(size_t index, uint32_t form, DeviceProbe& probe);
  uint64_t StagingSlots() const;
  Status AllocateMemory();
  Status FindDiskCosts();
  LatencyModel LatencyOfAll() const;
  Status JoinDevices();
  Status DropDevice(size_t index);
  Status ChooseFirstOnDevice();
  Status FillDevice();
  // Before a step that decodes: what DeviceTier::FillByPrompt() says, until it is told to stop.
  void FillDeviceByPrompt();
  // False: what is left is not copied any more; asked before each expert.
  using GoesOn = std::function<bool()>;
  Status CopyToDevices(std::span<const DeviceTier::Promotion> wanted, const GoesOn& goes_on);
  DeviceExperts::Shape DeviceShape(const ComputeDevice& there) const;
  Result<ExpertKey> AnyExpertOf(uint32_t form) const;
  uint64_t BytesOf(ExpertKey key) const;
  // Where memory goes; sets options.io_depth if that is left to a measurement.
  Result<PlannedMemory> PlanSlots(const FixedBytes& fixed);
  uint32_t MeasureIoDepth() const;
  // Bytes per second of the disk, by reading `total` bytes of experts.
  Result<double> ProbeReads(uint64_t total);
  Status Load();
  Status CheckBatch(const Batch& batch) const;
  Status CheckLittleStep(const Batch& batch) const;
  Status CheckForeseen(const Batch& batch) const;
  Status Extend(const Batch& batch);
  void CutBack(const Batch& batch);
  // The rows' embeddings to logits; decode costs are told to prefetch.
  Status Compute(const Batch& batch, const LogitsSink& sink);
  Status ComputeChunk(const Batch& batch, size_t first, size_t n, const LogitsSink& sink);
  Status Heads(const Batch& batch, size_t first, size_t n, const LogitsSink& sink);
  // True for a step that is to be computed with fewer experts first.
  bool is_for_little(const Batch& batch) const;
  // Rows of which the little pass is not sure are computed again, with all experts; their logits
  // come after the others'.
  Status ComputeLittleFirst(const Batch& batch, const LogitsSink& sink);
  Status ComputeAgain(const Batch& batch, std::span<const size_t> rows, const LogitsSink& sink);
  // The fastest of a few times; nullopt: something was missing each time. kIo: the rows are gone.
  Result<std::optional<double>> FastestStep(const Batch& again);
  // Seconds of a step with these rows; of both passes if there are two. Fails as FastestStep().
  Result<std::optional<double>> ProbeStep(Batch again);
  // What the rows would have said exactly, if this step is one to be checked; else empty.
  Result<std::span<const float>> CheckExactly(const Batch& batch);
  Status Counted(PhaseStats& phase, const std::function<Status()>& work);
  PhaseCount BeginCount(PhaseStats& phase) const;
  void EndCount(const PhaseCount& count) const;
  Interlude InterludeOf(const Batch& batch);
  Status StepAside(const Interlude& interlude, const LittleStep& rest);
  Status RunStep(const Batch& batch, PhaseStats& phase, const LogitsSink& sink);
  // Rows that are their sequences' last can be computed again.
  bool CanRepeat(const Batch& last) const;
  // Computes them again, into the same cells. An error: they are cut back.
  Status Repeat(const Batch& last, PhaseStats& phase);
  void Commit(const Batch& batch);
  Result<SequenceHome> Home();
  Watchers& watchers() { return forward ? forward->watchers() : nobody; }
  void BeginSequence() {
    residency->BeginSequence();
    if (device_tier) device_tier->BeginSequence();
    protocol->BeginSequence();
  }
  void Report(const char* what, uint64_t done, uint64_t total) const {
    if (progress) progress(what, done, total);
  }
};

}  // namespace moestro
