// SPDX-License-Identifier: MIT
// The contract of an engine: a loaded model that turns rows of tokens into logits within a budget
// of memory. Text, server, offline work and command line use this contract alone. Implementations:
// the native engine (native/native_engine.h, our own forward pass) and the hosted one
// (hosted/hosted_engine.h, libllama's). Sequences hold the tokens; Step() is the only call that
// computes.
//
// Thread rule: one thread for the whole life of the process opens engines and calls every method
// (ggml's OpenMP team belongs to it). RequestStop() may be called from a signal handler or any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"
#include "core/batch.h"
#include "core/expert_catalog.h"
#include "core/ids.h"
#include "core/model_spec.h"
#include "core/run_identity.h"
#include "decide/ahead/prefetch_planner.h"
#include "decide/devices/device_tier.h"
#include "decide/devices/latency_model.h"
#include "decide/slots/policy.h"
#include "decide/slots/resident_model.h"
#include "decide/slots/slot_table.h"
#include "engine/engine_options.h"
#include "engine/run_stats.h"
#include "engine/sequence.h"
#include "engine/watchers.h"

namespace moestro {

// done/total in any unit; called at most about 20 times a second from the engine thread.
using Progress = std::function<void(const char* what, uint64_t done, uint64_t total)>;

// Facts that do not change while the engine lives, except when a device is lost.
struct EngineFacts {
  std::string_view engine;     // "native" or "hosted"
  ModelId id = {};             // identifies files for this model
  std::string arch_name = {};  // as in general.architecture
  uint32_t threads = 0;        // that compute
  uint32_t n_layer = 0;        // with and without experts
  uint32_t n_vocab = 0;
  uint32_t n_ctx_train = 0;
  uint32_t n_ctx = 0;
  uint32_t chunk = 0;  // rows of a batch that are computed at once, at most
  // true: some layer has a state, or cells of the last positions alone, which cannot be cut back.
  bool has_states = false;
  std::optional<EncoderSpec> encoder = {};  // nullopt: the model has no encoder
  bool divides_at_kept = false;  // a kept row (BatchRow::is_kept) costs as much as another step
  uint64_t position_bytes = 0;   // bytes of a position in all layers
  uint64_t state_bytes = 0;      // bytes of the state of one sequence
  MemoryPlan memory = {};
  PolicyChoice policy = {};      // the policy in use
  ExpertPools pools = {};        // pools of the model's own copies, and the slots of each pool
  uint32_t max_look_ahead = 0;   // layers: options.prefetch, or fewer if the model has fewer
  uint32_t token_layers = 0;     // the first so many layers' experts are named by tokens
  uint32_t io_depth = 0;         // reads at a time, as requested or measured
  std::string description = {};  // processor, threads, reader, kernels: for reports
  std::string kernels = {};      // the kernels of the CPU; equal kernels give equal bits
  uint64_t recalled = 0;         // experts of an earlier run that are read first; 0: a cold start
  // Bytes of weights that drafting a token by the layer that predicts further tokens reads, the
  // experts and the head among them; 0: no such layer is loaded.
  uint64_t predicting_bytes = 0;

  bool predicts() const { return predicting_bytes > 0; }
};

// Measurements of an engine since it was opened.
struct EngineLearned {
  std::span<const PredictionScore> predictions = {};  // by distance; empty without prefetch
  DeviceStats device = {};  // the work of devices beside the CPU; zeros: no device
  // For each lane: the time now divided by the time measured at the start; 1: not known yet, fixed
  // by a file, or no device.
  LaneRatios lane_ratios = {};
};

// Slots of one size: their number, and the experts in them or on the way to them, in no order.
struct SlotContents {
  uint64_t slots = 0;
  uint64_t expert_bytes = 0;  // of one expert's matrices
  std::vector<ExpertKey> experts;
};

// Pool and bytes of a copy of an expert.
struct ExpertLocation {
  uint32_t pool = 0;   // the pool whose slots it takes
  uint64_t bytes = 0;  // of its matrices
};

// A step under way, computed piece by piece: a prompt's step may take seconds, and texts that are
// being written need not wait for all of them. Between two pieces Step() may be called for other
// sequences; their results stay even if this step fails. No other call of the engine may come
// between, nor any of the run's own sequences, which have the new tokens from Begin() on. Must not
// outlive the engine.
class StepRun {
 public:
  // The rows of a run that has not ended are cut back.
  virtual ~StepRun() = default;
  // Computes the next piece. True: the step has ended.
  // After an error the run has ended, and the sequences are as before. Errors: those of Step().
  // REQUIRES: the run has not ended.
  virtual Result<bool> Advance() = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;

  // Valid until the next step.
  virtual const EngineFacts& facts() const = 0;
  const ModelId& id() const { return facts().id; }
  uint32_t n_ctx() const { return facts().n_ctx; }
  uint32_t chunk() const { return facts().chunk; }
  const MemoryPlan& memory() const { return facts().memory; }

  // An empty sequence. It must not outlive the engine.
  virtual Sequence NewSequence() = 0;
  // Free positions of the KV cache, in whole blocks, and all of its positions. A sequence that goes
  // on by n positions takes at most n + 2 * kKvBlock free positions.
  struct KvRoom {
    uint32_t free = 0;
    uint32_t all = 0;
    // Places that sequences may take. A step takes one for the state of each sequence in it; where
    // layers have no state, a new sequence or a fork takes one, if places are limited at all. A
    // place that only a kept position holds is one of them: the position is forgotten then.
    uint32_t places = kAnyNumber;
    // False: a sequence that rests (Sequence::Rest()) holds none, so dropping it gives none back.
    bool rests_hold_places = true;
    static constexpr uint32_t kAnyNumber = UINT32_MAX;
  };
  virtual KvRoom kv_room() const = 0;

  // Receives a row with wants_logits set: its index in the batch, and [n_vocab] values that live
  // until the next call or step.
  using LogitsSink = std::function<void(size_t row, std::span<const float> logits)>;
  // Computes the rows and appends their tokens to their sequences. Each sequence's rows follow its
  // last position without gaps; rows of different sequences may be mixed. More rows than a chunk
  // are computed chunk by chunk, and so are their logits, in the order of the rows. A step with a
  // decode row counts as decode in all statistics. A little step counts no tokens. With
  // EngineOptions::little, decode rows of different sequences that all want logits are computed
  // with fewer experts first, and the logits of rows that are computed again come last.
  // kInvalidRequest: no rows, a little step that this engine cannot take, an unknown sequence, a
  // token out of range, a position that does not follow or is past n_ctx, no room in the KV cache.
  // kIo: a read failed twice. kInterrupted: after RequestStop(). kDevice: the device is lost. With
  // --device auto the engine has then started again on the CPU within this call. If the CPU's
  // budget does not hold the model, no later step works. kInvalidFile: a layer computed NaN or
  // infinity, or a file of the model has changed since it was opened, and no later step works.
  // After any error the sequences are as before. Between the pieces of a run kDevice is always an
  // error, and the run goes on or is dropped as its owner decides.
  virtual Status Step(const Batch& batch, const LogitsSink& sink = {}) = 0;
  // Begins a step that is computed piece by piece; one run exists at a time. Rows of prompts alone
  // have pieces (a layer of a chunk, or a chunk), unless rows stay on a device; other rows are one
  // piece. Errors: kInvalidRequest, and that of closed().
  virtual Result<std::unique_ptr<StepRun>> Begin(Batch batch, LogitsSink sink) = 0;
  // The tokens that the model's layer for further tokens expects behind `newest`, which follows the
  // sequence's tokens and is not computed: at most `most`, and none where room or a run between its
  // pieces does not allow it. Counts in the statistics of decode, but for tokens. The sequence
  // stays as it was. Errors: those of Step(). REQUIRES: facts().predicts().
  virtual Result<std::vector<Token>> Predict(const Sequence& /*sequence*/, Token /*newest*/,
                                             uint32_t /*most*/) {
    return std::vector<Token>();
  }
  // The error with which every later step fails; nullopt: steps can be computed.
  virtual const std::optional<Error>& closed() const = 0;
  // Makes the current step or piece return kInterrupted within some tens of milliseconds. The step
  // still waits for a device's computing and copies. Disk reads under way land later, beside the
  // next step. A request after a step's last look, or between steps, ends the next step. Each
  // request ends one step.
  virtual void RequestStop() = 0;
  // Reads every expert into its slot, so that no expert is missing from then on. kInvalidRequest
  // when the slots do not hold them all.
  virtual Status Preload() = 0;
  // Waits until remote hosts have their experts, which come to them while steps run: for what
  // counts afterwards.
  virtual void AwaitHosts() {}
  // Between steps, while the caller has nothing to compute: goes on with reads that no step waits
  // for, for some milliseconds. False: nothing is left to do.
  virtual bool WorkWhileIdle() { return false; }

  // The model, weights and choices that keys and values belong to. May read up to 16 MiB of experts
  // the first time. kIo; kInvalidFile: the model's file has changed.
  virtual Result<KvOrigin> kv_origin() = 0;
  // Writes a sequence with its keys and values to a file, and `notes`, any text of at most 16 MiB,
  // for the program that restores it. The file appears only when it is complete. kIo, and errors of
  // kv_origin().
  virtual Status SaveSequence(const Sequence& sequence, const std::string& notes,
                              const OutputPath& path) = 0;
  // Reads a saved sequence, which goes on with the same bits. kIo; kInvalidFile for a file that is
  // damaged or not a sequence; kInvalidRequest for a file of another model, of other weights or of
  // other choices, or a sequence that does not fit n_ctx or the KV cache; kUnsupported for a file
  // of another version; errors of kv_origin(). A file of other kernels is taken with a warning.
  virtual Result<SavedSequence> RestoreSequence(const std::string& path) = 0;
  // The tokens and notes that RestoreSequence() would restore. Keys and values are not read, so
  // damage in them is not seen. Errors: as RestoreSequence().
  virtual Result<SavedTokens> PeekSequence(const std::string& path) = 0;

  // Counters since the engine was opened, or since a caller set them to {}.
  virtual RunStats& stats() = 0;
  virtual EngineLearned learned() const = 0;
  // The contents of memory's slots, by pool.
  virtual std::vector<SlotContents> slot_contents() const = 0;
  virtual ExpertLocation place_of(ExpertKey key) const = 0;  // REQUIRES: the model has the copy
  // A model of which experts would be in memory if no expert were prefetched, with the engine's
  // slots and policy. The model is empty at first. It must not outlive the engine.
  virtual ResidentModel MakeResidentModel() const = 0;
  // For the last little step: the K experts that each layer's router ranked best for each row,
  // [layer][row][K], for Batch::foreseen. The row used the first of them. Valid until the next
  // little step.
  virtual std::span<const std::vector<ExpertId>> widened() const = 0;

  // Bytes per second of reads like decode's (same size, same depth) with no other work.
  virtual Result<double> ProbeDiskBandwidth() = 0;
  // Bytes per second of reading the slots' memory by a plain loop on all compute threads.
  virtual Result<double> ProbeMemoryBandwidth() = 0;
  // Seconds of a decode step of one row of each sequence with all its experts resident: repeats
  // their last tokens a few times (their experts have just been used) and takes the fastest step.
  // With EngineOptions::little, the seconds are those of a first pass and, in its measured share,
  // of a second pass. Counts in no statistics. Changes only recency, and the last tokens' keys and
  // values, which are those of a second pass afterwards. nullopt: no sequences, an empty one, or
  // the slots do not hold the step's experts. kIo: the sequences have lost their last tokens.
  virtual Result<std::optional<double>> ProbeComputeSeconds(
      std::span<Sequence* const> sequences) = 0;

  // Measures a step while other bytes of the experts are read as decode reads them: computation and
  // disk slow each other down. Takes a quarter of a second and four steps at least, twice that with
  // a first pass, and a MiB for each read at a time beside the budget. nullopt: as above, or the
  // engine does not measure it. kIo, kUnsupported, kNoMemory, kInvalidRequest: of the reads; kIo
  // also: the sequences have lost their last tokens.
  struct Together {
    double compute_seconds = 0.0;  // of a step
    double disk_bandwidth = 0.0;   // bytes per second
  };
  virtual Result<std::optional<Together>> ProbeTogether(std::span<Sequence* const> /*sequences*/) {
    return std::optional<Together>();
  }

  // `observer` gets every layer's routing, in the engine thread, with the experts that the routers
  // of the next `look_ahead` layers would choose and, if `candidates`, the next best experts of the
  // layer; may be empty. For traces. REQUIRES: look_ahead <= facts().max_look_ahead.
  void SetRouteObserver(RouteObserver observer, uint32_t look_ahead = 0, bool candidates = false) {
    CHECK(look_ahead <= facts().max_look_ahead);
    Watchers& watchers = this->watchers();
    watchers.look_ahead = observer ? look_ahead : 0;
    watchers.wants_candidates = observer && candidates;
    watchers.route = std::move(observer);
  }
  // `observer` gets every layer's plan before it is carried out; may be empty. For --explain.
  void SetPlanObserver(PlanObserver observer) { watchers().plan = std::move(observer); }
  // `observer` is called for every request for an expert; for tests that compare with the
  // simulator.
  virtual void SetRequestObserver(const SlotTable::Observer& observer) = 0;
  // Reports the progress of long prefills; empty: no reports.
  virtual void SetProgress(Progress progress) = 0;

 protected:
  // The callbacks that watch steps. An engine keeps them as long as it lives.
  virtual Watchers& watchers() = 0;
};

}  // namespace moestro
