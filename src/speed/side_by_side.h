// SPDX-License-Identifier: MIT
// Decodes for `bench`: sequences of random tokens, one row of each in a step; or one sequence with
// drafts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "text/draft_control.h"
#include "text/draft_options.h"
#include "text/drafter.h"
#include "text/drafting_stepper.h"
#include "text/engine_stepper.h"

namespace moestro {

struct SideBySideOptions {
  uint32_t sequences = 1;
  uint32_t depth = 0;    // positions of each with made-up keys and values, before the others
  uint32_t prefill = 0;  // tokens of each
  uint32_t decode = 0;   // tokens of each
  uint32_t seed = 0;
  DraftOptions draft = {};                // with one sequence only
  std::optional<double> acceptance = {};  // each draft is right with this probability
};

class SideBySide {
 public:
  // The engine must outlive this.
  SideBySide(Engine& engine, const SideBySideOptions& options);

  // Errors of all calls below: those of Engine::Step() and Engine::MakeUp().
  Status MakeUpDepth();  // before anything else
  Status Prefill();
  Status Decode();  // the next token of each sequence
  Status Finish();  // after the last one

  std::span<Sequence* const> sequences() const { return pointers_; }
  const std::string& hash() const { return hash_; }  // of the last row's last logits

 private:
  Status DecodeDrafted();
  void PrepareDrafts();

  SideBySideOptions options_;
  Engine& engine_;
  std::vector<std::vector<Token>> tokens_;
  std::vector<Sequence> sequences_;
  std::vector<Sequence*> pointers_;
  std::string hash_;
  // Members for runs with drafts.
  std::optional<EngineStepper> plain_;
  std::unique_ptr<Drafter> drafter_;
  std::optional<DraftControl> control_;
  std::optional<DraftingStepper> drafting_;
};

}  // namespace moestro
