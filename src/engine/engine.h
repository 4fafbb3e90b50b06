// SPDX-License-Identifier: MIT
// A loaded model with its expert slots: the boundary that the command line, tests and later the
// server see. Opening reads the dense weights and reserves every byte the budget allows. What is
// being written lives in Sequences; Step() is the only verb that computes.
//
// Thread rule: one thread for the whole life of the process calls Open() and every method (ggml's
// OpenMP team belongs to it). RequestStop() may be called from a signal handler or any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/batch.h"
#include "core/expert_pools.h"
#include "core/ids.h"
#include "core/interlude.h"
#include "core/machine_costs.h"
#include "core/model_id.h"
#include "core/model_spec.h"
#include "decide/ahead/prefetch_planner.h"
#include "decide/devices/device_tier.h"
#include "decide/devices/latency_model.h"
#include "decide/slots/resident_model.h"
#include "decide/slots/slot_table.h"
#include "engine/engine_options.h"
#include "engine/run_stats.h"
#include "forward/observers.h"
#include "memory/sequence.h"
#include "memory/sequence_file.h"
#include "model/model_file.h"

namespace moestro {

// done/total in any unit; called at most about 20 times a second from the engine thread.
using Progress = std::function<void(const char* what, uint64_t done, uint64_t total)>;

// Slots of one size: how many, and who is in them or on the way there, in no order.
struct SlotContents {
  uint64_t slots = 0;
  uint64_t expert_bytes = 0;  // of one expert's matrices
  std::vector<ExpertKey> experts;
};

// A sequence that came from a file.
struct SavedSequence {
  Sequence sequence;
  std::string notes;
};

class Engine {
 public:
  // Errors: what ModelFile::Open() says; kInvalidRequest when the budget is too small (names the
  // smallest that works, broken down).
  static Result<std::unique_ptr<Engine>> Open(const std::string& model_path,
                                              const EngineOptions& options, Progress progress = {});
  // Of a file that is open already.
  static Result<std::unique_ptr<Engine>> Open(ModelFile model, const EngineOptions& options,
                                              Progress progress = {});
  ~Engine();
  // Where the budget would go, without reading a weight. Errors: those of Open() but for kIo while
  // reading.
  static Result<MemoryPlan> Plan(const std::string& model_path, const EngineOptions& options);

  const ModelSpec& spec() const;
  uint32_t n_ctx() const;
  uint32_t chunk() const;  // rows of a batch that are computed at once, at most
  const MemoryPlan& memory() const;
  // What devices did beside the CPU since the engine was opened; zeros: there are none.
  DeviceStats device_stats() const;
  // How many times as long as was measured at the start the lanes take by now; 1: as yet unknown,
  // fixed by a file, or there is no device.
  LaneRatios lane_ratios() const;
  const PolicyChoice& policy() const;        // that is really used
  const ModelId& id() const;                 // by which files are known to be for this model
  uint64_t copy_bytes(ExpertKey key) const;  // of its matrices. REQUIRES: there is such a copy

  uint32_t pool_of(ExpertKey key) const;  // whose slots it takes. REQUIRES: the same
  // Of memory's slots, by pool.
  std::vector<SlotContents> slot_contents() const;

  // Positions of the KV cache that are free, whole blocks only, and that there are. A sequence that
  // goes on by n positions takes at most n + 2 * KvBlocks::kPositions of the free ones.
  struct KvRoom {
    uint32_t free = 0;
    uint32_t all = 0;
    uint32_t states = 0;  // free places for a sequence's state; 0 where no layer has one, too
  };
  KvRoom kv_room() const;
  // What sequences take, declared by the model's layers.
  const MemoryShape& remembers() const;

  // An empty sequence. It must not outlive the engine.
  Sequence NewSequence();

  // Called for a row that wants logits: its index in the batch, and [n_vocab] values that live
  // until the next call or step.
  using LogitsSink = std::function<void(size_t row, std::span<const float> logits)>;
  // Computes the rows and appends their tokens to their sequences. Each sequence's rows follow its
  // last position without gaps; rows of different sequences may be mixed. More rows than a chunk
  // are computed chunk by chunk, and so are their logits, in the order of the rows. A step with a
  // decode row counts as decode in all statistics, a little step without tokens. With
  // EngineOptions::little, decode rows of different sequences that all want logits are computed
  // with fewer experts first, and the logits of those computed again come last.
  // kInvalidRequest: no rows, a little step that this model cannot take, an unknown sequence, a
  // token out of range, a position that does not follow or is past n_ctx, no room in the KV cache.
  // kIo: a read failed twice. kInterrupted: after RequestStop(). kDevice: the device is lost; with
  // --device auto the CPU has started again instead, within this call, unless its budget does not
  // hold the model: then no later step works either. kInvalidFile: a layer computed NaN or
  // infinity, or a file of the model has changed since it was opened, and no later step works.
  // After any error the sequences are as before.
  // A step of prompts' rows alone is interrupted between layers when `interlude` is due, unless
  // rows stay on a device. Within it Step() may be called for other sequences, whose results stay
  // whatever becomes of the prompt: kDevice is then an error, a stop waits for the prompt.
  Status Step(const Batch& batch, const LogitsSink& sink = {}, const Interlude& interlude = {});
  // Why no step can be computed any more: all of them fail with this. nullopt: they can.
  const std::optional<Error>& closed() const;

  // Gives an empty sequence these tokens with keys and values that are made up from the seed and
  // not computed, for measuring what a long context costs. kInvalidRequest: they are no tokens, or
  // do not fit n_ctx or the KV cache. kDevice. The sequence is empty then. REQUIRES: it was.
  Status MakeUp(const Sequence& sequence, std::span<const Token> tokens, uint64_t seed);

  // Of the last little step: the K experts that each layer's router ranked best for each row, of
  // which the row used the first: [layer][row][K], for Batch::foreseen. Until the next little step.
  std::span<const std::vector<ExpertId>> widened() const;
  // Of the rows of decode steps since the last call, `proposed` were drafts of tokens to come, of
  // which the text took `accepted`; the others are no tokens in the statistics.
  void NoteDrafts(uint64_t proposed, uint64_t accepted);

  // To whom keys and values belong. May read up to 16 MiB of experts the first time. kIo;
  // kInvalidFile: the model's file has changed.
  Result<KvOrigin> kv_origin();
  // Writes a sequence with its keys and values to a file, and `notes`, any text of at most 16 MiB,
  // for the program that restores it. The file appears only when it is complete. kIo, and what
  // kv_origin() says.
  Status SaveSequence(const Sequence& sequence, const std::string& notes, const std::string& path);
  // Reads a saved sequence, which goes on with the same bits. kIo; kInvalidFile for a file that is
  // damaged or none; kInvalidRequest for one of another model, of other weights or of other
  // choices, or one that does not fit n_ctx or the KV cache; kUnsupported for one of another
  // version; what kv_origin() says. One of other kernels is taken with a warning.
  Result<SavedSequence> RestoreSequence(const std::string& path);
  // The tokens and notes that RestoreSequence() would restore. Keys and values are not read, so
  // damage in them is not seen. Errors: as RestoreSequence().
  Result<SavedTokens> PeekSequence(const std::string& path);

  // Makes the current step return kInterrupted soon, whatever it is doing: within some tens of
  // milliseconds, but for what a device computes or has been asked to copy. What the disk has been
  // asked for lands later, beside the next step. A request that comes after a step's last look, or
  // between steps, ends the next one. Each request ends one step.
  void RequestStop();

  // Reads every expert into its place, so that nothing is missing from then on. kInvalidRequest
  // when the slots do not hold them all.
  Status Preload();

  uint32_t io_depth() const;  // reads at a time, as it was asked for or measured
  // Counters since Open() or the last ResetStats().
  const RunStats& stats() const;
  void ResetStats();
  // Bytes per second of reads like decode's (same size, same depth) with nothing else going on.
  Result<double> ProbeDiskBandwidth();
  // Bytes per second of reading the slots' memory by a plain loop on all compute threads.
  Result<double> ProbeMemoryBandwidth();
  // Seconds a decode step of one row of each sequence takes when all its experts are resident:
  // repeats their last tokens a few times (their experts have just been used) and takes the
  // fastest; with EngineOptions::little, of the first pass and, in its measured share, of the
  // second. Counts in no statistics; changes no state but recency, and what a first pass left of
  // the last tokens is a second one's then. nullopt: a sequence is empty or there is none, or the
  // slots do not hold the step's experts. kIo: the sequences have lost their last tokens.
  Result<std::optional<double>> ProbeComputeSeconds(std::span<Sequence* const> sequences);
  // What the simulator's clock needs to know of decoding one row at a time, by repeating the
  // sequence's last token and by reading experts: takes some seconds. Counts in no statistics;
  // changes no state but recency and who is in slots. nullopt: it is empty, or the slots do not
  // hold the token's experts. kInvalidRequest: with devices, or with experts that are not exact.
  // kIo: the sequence has lost its last token.
  Result<std::optional<MachineCosts>> ProbeCosts(const Sequence& sequence);
  // Of the model's own copies, and the slots of each.
  ExpertPools pools() const;
  // Sees every layer's routing, in the engine thread, and what the next `look_ahead` layers'
  // routers would say, and which other experts could run if `candidates`; may be empty. For traces.
  // REQUIRES: look_ahead <= max_look_ahead().
  void SetRouteObserver(RouteObserver observer, uint32_t look_ahead = 0, bool candidates = false);
  uint32_t max_look_ahead() const;  // as many layers as options.prefetch says, or as there are
  // By distance, see PredictionScore; empty without prefetch.
  std::span<const PredictionScore> prediction_scores() const;
  // Choices in place of the routers', for measurements; empty: the routers decide.
  void SetRoutingOverride(RoutingOverride routing);
  // Other copies in place of the planned ones, for measurements; empty: as planned.
  void SetCopyOverride(CopyOverride copies);
  // Sees every layer's plan before it is carried out; may be empty. For --explain.
  void SetPlanObserver(PlanObserver observer);
  // Called for a step that was also evaluated exactly (EngineOptions::check_every) with the logits
  // of both: the next token after the same history, which is the lossy run's own. The spans live
  // until it returns. Empty: nothing is checked. It uses the model's own routers.
  using CheckObserver =
      std::function<void(std::span<const float> exact, std::span<const float> actual)>;
  void SetCheckObserver(CheckObserver observer);
  // Who would be in memory if nothing were prefetched, empty: with the engine's slots and policy.
  // It must not outlive the engine.
  ResidentModel MakeResidentModel() const;
  // Sees what every layer's experts were given, after they have run; may be empty. For
  // importances.
  void SetExpertObserver(ExpertObserver observer);
  // Waits until no read is under way. For tests and probes.
  void FinishReads();
  // Sees every request for an expert; for tests that compare with the simulator.
  void SetRequestObserver(const SlotTable::Observer& observer);
  void SetProgress(Progress progress);  // for long prefills; empty: none
  std::string description() const;      // processor, threads, reader, kernels: for reports
  // What computes on the CPU. Where this is equal, so are the bits.
  std::string kernels() const;

 private:
  struct Lasting;  // what outlasts a restart
  struct Impl;     // the rest
  friend class CostProbe;
  Engine(std::unique_ptr<Lasting> lasting, std::unique_ptr<Impl> impl);
  Status StepWhole(const Batch& batch, const LogitsSink& sink);
  Status LeaveDevices(const Error& why);

  std::unique_ptr<Lasting> lasting_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro
