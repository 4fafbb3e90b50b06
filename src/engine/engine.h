// SPDX-License-Identifier: MIT
// A loaded model and one sequence of tokens: the boundary that the command line, tests and later
// the server see. Opening reads the dense weights and reserves every byte the budget allows.
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
#include "core/ids.h"
#include "core/model_spec.h"
#include "core/routing.h"
#include "decide/prefetch_planner.h"
#include "decide/slot_table.h"
#include "engine/engine_options.h"
#include "engine/observers.h"
#include "engine/run_stats.h"
#include "model/model_file.h"

namespace moestro {

// done/total in any unit; called at most about 20 times a second from the engine thread.
using Progress = std::function<void(const char* what, uint64_t done, uint64_t total)>;

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

  const ModelSpec& spec() const;
  uint32_t n_ctx() const;
  const MemoryPlan& memory() const;
  const PolicyChoice& policy() const;  // that is really used
  uint64_t model_id() const;           // see Fingerprint()

  // Appends tokens to the sequence and returns the logits after the last one, [n_vocab], valid
  // until the next call. One token is a decode step; more are prefill in chunks. kInvalidRequest:
  // empty, id out of range, or position past n_ctx. kIo: a read failed twice; the sequence is then
  // as before the call. kInterrupted after RequestStop().
  Result<std::span<const float>> Append(std::span<const Token> tokens);
  // Same, with the logits of every token: [n_tokens][n_vocab] row-major.
  Result<std::vector<float>> AppendAll(std::span<const Token> tokens);

  uint32_t position() const;  // tokens in the sequence
  // Forgets all tokens from `position` on. REQUIRES: position <= this->position().
  void Rewind(uint32_t position);
  void Reset() { Rewind(0); }

  // Makes the current Append() return kInterrupted at the next layer border, or if it has passed
  // its last one, the next Append(). ProbeComputeSeconds() takes such a request back.
  void RequestStop();

  // Reads every expert into its place, so that nothing is missing from then on. kInvalidRequest
  // when the slots do not hold them all.
  Status Preload();

  // Counters since Open() or the last ResetStats().
  const RunStats& stats() const;
  void ResetStats();
  // Bytes per second of reads like decode's (same size, same depth) with nothing else going on.
  Result<double> ProbeDiskBandwidth();
  // Seconds a decode step takes when all its experts are resident: repeats the last token a few
  // times (its experts have just been used) and takes the fastest. Counts in no statistics, changes
  // no state but recency. nullopt: the sequence is empty, or the slots do not hold one token's
  // experts.
  Result<std::optional<double>> ProbeComputeSeconds();
  // Sees every layer's routing, in the engine thread, and what the next `look_ahead` layers'
  // routers would say; empty: nobody. For traces. REQUIRES: look_ahead <= max_look_ahead().
  void SetRouteObserver(RouteObserver observer, uint32_t look_ahead = 0);
  uint32_t max_look_ahead() const;  // as many layers as options.prefetch says, or as there are
  // By distance, see PredictionScore; empty without prefetch.
  std::span<const PredictionScore> prediction_scores() const;
  // Sees every request for an expert; for tests that compare with the simulator.
  void SetRequestObserver(const SlotTable::Observer& observer);
  void SetProgress(Progress progress);  // for long prefills; empty: none
  std::string description() const;      // processor, threads, reader, kernels: for reports

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro
