// SPDX-License-Identifier: MIT
// The hosted engine: libllama's forward pass, unchanged, on our residency. It runs every model with
// experts that libllama supports. libllama uses the file as mapped memory. Other memory lies at the
// mapped addresses, and an expert is read into this memory when the graph has chosen the expert
// (hosted/graph_server.h). docs/hosted.md lists the engine's features and the errors that end the
// process.
//
// Thread rule: that of Engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "model/gguf_file.h"

namespace moestro {

class HostedEngine final : public Engine {
 public:
  // kUnsupported: an option needs the native engine, or libllama's graph cannot be served;
  // kInvalidFile: libllama cannot read the model; kInvalidRequest: the budget is too small (names
  // the smallest that works); kIo; kNoMemory.
  static Result<std::unique_ptr<HostedEngine>> Open(GgufFile file, const EngineOptions& options,
                                                    Progress progress = {});
  ~HostedEngine() override;
  // The plan of the budget, without reading a weight. Errors: those of Open(), except kIo while
  // reading.
  static Result<MemoryPlan> Plan(GgufFile file, const EngineOptions& options);

  const EngineFacts& facts() const override;
  Sequence NewSequence() override;
  KvRoom kv_room() const override;
  using Engine::Step;
  // Steps of the interlude run between two chunks of a prompt.
  Status Step(const Batch& batch, const LogitsSink& sink, const Interlude& interlude) override;
  const std::optional<Error>& closed() const override;
  void RequestStop() override;
  Status Preload() override;
  Result<KvOrigin> kv_origin() override;
  Status SaveSequence(const Sequence& sequence, const std::string& notes,
                      const OutputPath& path) override;
  Result<SavedSequence> RestoreSequence(const std::string& path) override;
  Result<SavedTokens> PeekSequence(const std::string& path) override;
  RunStats& stats() override;
  EngineLearned learned() const override;
  std::vector<SlotContents> slot_contents() const override;
  ExpertPlace place_of(ExpertKey key) const override;
  ResidentModel MakeResidentModel() const override;
  std::span<const std::vector<ExpertId>> widened() const override;
  Result<double> ProbeDiskBandwidth() override;
  Result<double> ProbeMemoryBandwidth() override;
  Result<std::optional<double>> ProbeComputeSeconds(std::span<Sequence* const> sequences) override;
  void SetRequestObserver(const SlotTable::Observer& observer) override;
  void SetProgress(Progress progress) override;
  // Waits until no read is under way; for tests that compare with the simulator.
  void FinishReads();

 private:
  struct Parts;
  explicit HostedEngine(std::unique_ptr<Parts> parts);
  Watchers& watchers() override;

  std::unique_ptr<Parts> parts_;
};

}  // namespace moestro
