// SPDX-License-Identifier: MIT
// The native engine: our own forward pass, with observers and overrides that no other engine has.
// Opening reads the dense weights and reserves every byte that the budget allows.
//
// Thread rule: that of Engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "core/machine.h"
#include "core/model_spec.h"
#include "engine/engine.h"
#include "kit/slot_engine.h"
#include "model/model_file.h"

namespace moestro {

class NativeEngine final : public SlotEngine {
 public:
  // Errors of ModelFile::Open(); kInvalidRequest: the budget is too small (names the smallest that
  // works, broken down).
  static Result<std::unique_ptr<NativeEngine>> Open(const std::string& model_path,
                                                    const EngineOptions& options,
                                                    Progress progress = {});
  // Opens the engine for a file that is open already.
  static Result<std::unique_ptr<NativeEngine>> Open(ModelFile file, const EngineOptions& asked,
                                                    Progress progress = {});
  ~NativeEngine() override;
  // The plan of the budget, without reading a weight. Errors: those of Open(), except kIo while
  // reading.
  static Result<MemoryPlan> Plan(const std::string& model_path, const EngineOptions& asked);

  const EngineFacts& facts() const override;
  Result<std::vector<Token>> Predict(const Sequence& sequence, Token newest,
                                     uint32_t most) override;
  void AwaitHosts() override;
  Result<KvOrigin> kv_origin() override;
  Status SaveSequence(const Sequence& sequence, const std::string& notes,
                      const OutputPath& path) override;
  Result<SavedSequence> RestoreSequence(const std::string& path) override;
  Result<SavedTokens> PeekSequence(const std::string& path) override;
  EngineLearned learned() const override;
  std::span<const std::vector<ExpertId>> widened() const override;
  Result<std::optional<double>> ProbeComputeSeconds(std::span<Sequence* const> sequences) override;

  const ModelSpec& spec() const;

  // Gives an empty sequence these tokens with keys and values that are made up from the seed and
  // not computed, to measure the costs of a long context. kInvalidRequest: `tokens` are not of the
  // vocabulary, or do not fit n_ctx or the KV cache. kDevice. After an error the sequence is empty.
  // REQUIRES: the sequence is empty.
  Status MakeUp(const Sequence& sequence, std::span<const Token> tokens, uint64_t seed);
  // Measures the costs of decoding one row at a time for the simulator's clock. Repeats the
  // sequence's last token and reads experts; this takes some seconds. Counts in no statistics;
  // changes no state but recency and which experts are in slots. nullopt: the sequence is empty, or
  // the slots do not hold the token's experts. kInvalidRequest: with devices, or with experts that
  // are not exact. kIo: the sequence has lost its last token.
  Result<std::optional<MachineCosts>> ProbeCosts(const Sequence& sequence);
  // Sets choices that replace the routers' choices, for measurements; empty: the routers decide.
  void SetRoutingOverride(RoutingOverride routing);
  // Sets copies that replace the planned copies, for measurements; empty: as planned.
  void SetCopyOverride(CopyOverride copies);
  // Called for a step that was also evaluated exactly (EngineOptions::check_every) with the logits
  // of both: logits of the next token after the same history of the lossy run. The spans live until
  // the observer returns. Empty: no step is checked. The exact step uses the model's own routers.
  using CheckObserver =
      std::function<void(std::span<const float> exact, std::span<const float> actual)>;
  void SetCheckObserver(CheckObserver observer);
  // Sets an observer that gets the inputs of every layer's experts after the experts have run; may
  // be empty. For importances.
  void SetExpertObserver(ExpertObserver observer);

 private:
  struct Lasting;  // parts that outlast a restart
  struct Running;  // parts that a restart makes again
  NativeEngine(std::unique_ptr<Lasting> lasting, std::unique_ptr<Running> running);
  EngineKit* kit() const override;
  StepSequences& sequences() const override;
  Status CheckMore(const Batch& batch) const override;
  Status Compute(const Batch& batch, const LogitsSink& sink) override;
  std::unique_ptr<StepPieces> PiecesOf(const Batch& batch, LogitsSink sink) override;
  Status ComputeStep(const Batch& batch, StepCount& count, const LogitsSink& sink) override;
  Status EndPieces(Status computed, const Batch& batch, PhaseStats& phase,
                   LogitsOnce& logits) override;
  LittleStep first_pass() const override;
  bool computes_alone() const override;
  Result<std::span<const float>> CheckExactly(const Batch& batch);
  Status ComputeAgainWithout(const Error& wrong);
  std::optional<Error> TakeWrong();
  bool may_leave_devices() const;
  Status LoseDevices(const Error& why);
  Status LeaveSlowDevices(const Batch& batch, double seconds);
  Status LeaveDevices(const std::string& why);

  std::unique_ptr<Lasting> lasting_;
  std::unique_ptr<Running> running_;
};

// The native engine behind `engine`. kUnsupported: `engine` is another engine, which cannot do
// `what` (the subject of the message, such as "--little").
Result<NativeEngine*> AsNative(Engine& engine, std::string_view what);

}  // namespace moestro
