// SPDX-License-Identifier: MIT
// An Engine seen as a Stepper.
#pragma once

#include "decode/stepper.h"
#include "engine/engine.h"

namespace moestro {

class EngineStepper final : public Stepper {
 public:
  // `engine` must outlive this.
  explicit EngineStepper(Engine& engine) : engine_(engine) {}

  Result<std::span<const float>> Append(std::span<const Token> tokens) override {
    return engine_.Append(tokens);
  }
  uint32_t position() const override { return engine_.position(); }
  uint32_t n_ctx() const override { return engine_.n_ctx(); }
  void Rewind(uint32_t position) override { engine_.Rewind(position); }

 private:
  Engine& engine_;
};

}  // namespace moestro
