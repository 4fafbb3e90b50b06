// SPDX-License-Identifier: MIT
// An engine without a model: the two logits of a row are the row's token and the number of tokens
// up to it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace moestro {

class ScriptedEngine final : public Engine, public SequenceOwner {
 public:
  explicit ScriptedEngine(uint32_t n_ctx) {
    facts_.n_vocab = 2;
    facts_.n_ctx = n_ctx;
    facts_.chunk = 64;
  }

  // The n-th step from now on fails, from 1 on.
  void FailAt(int step, Errc code) {
    fails_at_ = steps_ + step;
    code_ = code;
  }
  int steps() const { return steps_; }
  size_t foreseen() const { return foreseen_; }  // layers, in the last step that had any

  const EngineFacts& facts() const override { return facts_; }
  Sequence NewSequence() override {
    const SequenceId id{next_++};
    tokens_[id] = {};
    return {*this, id};
  }
  KvRoom kv_room() const override { return {.free = facts_.n_ctx, .all = facts_.n_ctx}; }
  Status Step(const Batch& batch, const LogitsSink& sink) override {
    if (++steps_ == fails_at_) return Fail(code_, "injected");
    if (!batch.foreseen.empty()) foreseen_ = batch.foreseen.size();
    std::vector<float> logits;
    for (size_t i = 0; i < batch.size(); ++i) {
      const BatchRow& row = batch.rows[i];
      std::vector<Token>& tokens = tokens_.at(row.sequence);
      EXPECT_EQ(row.position, tokens.size());
      EXPECT_LT(row.position, facts_.n_ctx);
      tokens.push_back(row.token);
      logits = {static_cast<float>(row.token), static_cast<float>(tokens.size())};
      if (row.wants_logits) sink(i, logits);
    }
    return {};
  }
  Result<std::unique_ptr<StepRun>> Begin(Batch batch, LogitsSink sink) override {
    return std::make_unique<WholeRun>(*this, std::move(batch), std::move(sink));
  }
  const std::optional<Error>& closed() const override { return closed_; }
  void RequestStop() override {}
  Status Preload() override { return {}; }
  Result<KvOrigin> kv_origin() override { return KvOrigin{}; }
  Status SaveSequence(const Sequence&, const std::string&, const OutputPath&) override {
    return {};
  }
  Result<SavedSequence> RestoreSequence(const std::string&) override { return None(); }
  Result<SavedTokens> PeekSequence(const std::string&) override { return None(); }
  RunStats& stats() override { return stats_; }
  EngineLearned learned() const override { return {}; }
  std::vector<SlotContents> slot_contents() const override { return {}; }
  ExpertLocation place_of(ExpertKey) const override { return {}; }
  ResidentModel MakeResidentModel() const override { return {{}, {}}; }
  std::span<const std::vector<ExpertId>> widened() const override { return {}; }
  Result<double> ProbeDiskBandwidth() override { return None(); }
  Result<double> ProbeMemoryBandwidth() override { return None(); }
  Result<std::optional<double>> ProbeComputeSeconds(std::span<Sequence* const>) override {
    return None();
  }
  void SetRequestObserver(const SlotTable::Observer&) override {}
  void SetProgress(Progress) override {}

  SequenceId Fork(SequenceId id) override {
    const SequenceId fork{next_++};
    tokens_[fork] = tokens_.at(id);
    return fork;
  }
  void Drop(SequenceId id) override { tokens_.erase(id); }
  std::span<const Token> TokensOf(SequenceId id) const override { return tokens_.at(id); }
  uint32_t Reach(SequenceId, uint32_t position) const override { return position; }
  void CutBack(SequenceId id, uint32_t position) override { tokens_.at(id).resize(position); }
  void Keep(SequenceId) override {}
  void Rest(SequenceId) override {}

 protected:
  Watchers& watchers() override { return watchers_; }

 private:
  class WholeRun final : public StepRun {
   public:
    WholeRun(ScriptedEngine& engine, Batch batch, LogitsSink sink)
        : engine_(engine), batch_(std::move(batch)), sink_(std::move(sink)) {}
    Result<bool> Advance() override {
      TRY_STATUS(engine_.Step(batch_, sink_));
      return true;
    }

   private:
    ScriptedEngine& engine_;
    Batch batch_;
    LogitsSink sink_;
  };
  static std::unexpected<Error> None() { return Fail(Errc::kUnsupported, "not scripted"); }

  EngineFacts facts_;
  RunStats stats_;
  Watchers watchers_;
  std::optional<Error> closed_;
  std::map<SequenceId, std::vector<Token>> tokens_;
  uint32_t next_ = 0;
  int steps_ = 0;
  int fails_at_ = -1;
  Errc code_ = Errc::kIo;
  size_t foreseen_ = 0;
};

}  // namespace moestro
