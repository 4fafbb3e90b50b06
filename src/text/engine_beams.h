// SPDX-License-Identifier: MIT
// Forks of one engine's sequences as BeamRows: keys and values are shared, and a step of all rows
// reads each expert once.
#pragma once

#include <vector>

#include "engine/engine.h"
#include "text/beam_search.h"

namespace moestro {

class EngineBeams final : public BeamRows {
 public:
  // `engine` must outlive this, and have room for the rows' sequences.
  explicit EngineBeams(Engine& engine) : engine_(engine) {}

  Status Begin(std::span<const Token> prompt, const Sink& sink) override;
  Status Advance(std::span<const uint32_t> parents, std::span<const Token> tokens,
                 const Sink& sink) override;

 private:
  Engine& engine_;
  std::vector<Sequence> rows_;
};

}  // namespace moestro
