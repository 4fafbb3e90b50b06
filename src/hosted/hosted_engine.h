// SPDX-License-Identifier: MIT
// The hosted engine: libllama's forward pass, unchanged, on our residency. It runs every model with
// experts that libllama knows. libllama believes the file to be mapped; at these addresses lies
// memory that is filled with an expert when the graph has chosen it (hosted/graph_server.h).
// docs/hosted.md says what it can and what ends the process.
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
  // kUnsupported: an option needs the native engine, or libllama's graph does what cannot be
  // served; kInvalidFile: libllama cannot read the model; kInvalidRequest: the budget is too small
  // (names the smallest that works); kIo; kNoMemory.
  static Result<std::unique_ptr<HostedEngine>> Open(GgufFile file, const EngineOptions& options,
                                                    Progress progress = {});
  ~HostedEngine() override;
  // Where the budget would go, without reading a weight. Errors: those of Open() but for kIo while
  // reading.
  static Result<MemoryPlan> Plan(GgufFile file, const EngineOptions& options);

  const EngineFacts& facts() const override;
  Sequence NewSequence() override;
  KvRoom kv_room() const override;
  using Engine::Step;
  // Others' steps come between two chunks of a prompt.
  Status Step(const Batch& batch, const LogitsSink& sink, const Interlude& interlude) override;
  const std::optional<Error>& closed() const override;
  void RequestStop() override;
  Status Preload() override;
  Result<KvOrigin> kv_origin() override;
  Status SaveSequence(const Sequence& sequence, const std::string& notes,
                      const std::string& path) override;
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

 private:
  struct Parts;
  explicit HostedEngine(std::unique_ptr<Parts> parts);
  Watchers& watchers() override;

  std::unique_ptr<Parts> parts_;
};

}  // namespace moestro
