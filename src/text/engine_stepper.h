// SPDX-License-Identifier: MIT
// One sequence of an engine seen as a Stepper.
#pragma once

#include "engine/append.h"
#include "engine/engine.h"
#include "text/stepper.h"

namespace moestro {

class EngineStepper final : public Stepper {
 public:
  // Both must outlive this.
  EngineStepper(Engine& engine, Sequence& sequence) : engine_(engine), sequence_(sequence) {}

  Result<std::span<const float>> Append(std::span<const Token> tokens) override {
    return moestro::Append(engine_, sequence_, tokens);
  }
  uint32_t position() const override { return sequence_.position(); }
  uint32_t n_ctx() const override { return engine_.n_ctx(); }
  void Rewind(uint32_t position) override { sequence_.CutBack(position); }

 private:
  Engine& engine_;
  Sequence& sequence_;
};

}  // namespace moestro
