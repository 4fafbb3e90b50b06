// SPDX-License-Identifier: MIT
#include "text/engine_beams.h"

#include <utility>

#include "base/check.h"
#include "core/batch.h"
#include "engine/append.h"

namespace moestro {

Status EngineBeams::Begin(std::span<const Token> prompt, const Sink& sink) {
  rows_.clear();
  rows_.push_back(engine_.NewSequence());
  TRY(const std::span<const float> logits, Append(engine_, rows_.front(), prompt));
  sink(0, logits);
  return {};
}

Status EngineBeams::Advance(std::span<const uint32_t> parents, std::span<const Token> tokens,
                            const Sink& sink) {
  CHECK(!parents.empty() && parents.size() == tokens.size());
  std::vector<Sequence> next;
  for (const uint32_t parent : parents) next.push_back(rows_.at(parent).Fork());
  rows_ = std::move(next);  // the old sequences give back cells that no new one shares
  Batch batch;
  for (size_t i = 0; i < rows_.size(); ++i) {
    batch.rows.push_back({.sequence = rows_[i].id(),
                          .position = rows_[i].position(),
                          .token = tokens[i],
                          .wants_logits = true});
  }
  Status status = engine_.Step(batch, sink);
  if (!status) rows_.clear();
  return status;
}

}  // namespace moestro
