// SPDX-License-Identifier: MIT
// One sequence of an engine as a Stepper.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/append.h"
#include "engine/engine.h"
#include "text/stepper.h"

namespace moestro {

class EngineStepper final : public RowStepper {
 public:
  // All must outlive this. kept: as of Append().
  EngineStepper(Engine& engine, Sequence& sequence, std::span<const uint32_t> kept = {})
      : engine_(engine), sequence_(sequence), kept_(kept) {}

  Result<std::span<const float>> Append(std::span<const Token> tokens) override {
    return moestro::Append(engine_, sequence_, tokens, kept_);
  }
  Result<std::span<const float>> AppendRows(std::span<const Token> tokens,
                                            std::vector<std::vector<ExpertId>> foreseen) override {
    rows_.clear();
    Batch batch = RowsOf(sequence_, tokens, RowKind::kDecode, true);
    batch.foreseen = std::move(foreseen);
    // Keeps every row's state, if layers have states and this does not divide the step: a state
    // cannot be cut back. Writing each state to another place costs a few milliseconds of memory's
    // time; the right tokens are then not computed again after wrong ones.
    const EngineFacts& facts = engine_.facts();
    if (facts.state_bytes > 0 && !facts.divides_at_kept) {
      for (BatchRow& row : std::span(batch.rows).first(batch.rows.size() - 1)) row.is_kept = true;
    }
    TRY_STATUS(engine_.Step(batch, [this](size_t, std::span<const float> logits) {
      rows_.insert(rows_.end(), logits.begin(), logits.end());
    }));
    return rows_;
  }
  std::span<const Token> tokens() const override { return sequence_.tokens(); }
  uint32_t position() const override { return sequence_.position(); }
  uint32_t n_ctx() const override { return engine_.n_ctx(); }
  Status Rewind(uint32_t position) override { return CutBackTo(engine_, sequence_, position); }

 private:
  Engine& engine_;
  Sequence& sequence_;
  std::span<const uint32_t> kept_;
  std::vector<float> rows_;
};

}  // namespace moestro
