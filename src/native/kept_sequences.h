// SPDX-License-Identifier: MIT
// Sequences in files, and the model, weights and choices that their keys and values belong to.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "core/batch.h"
#include "engine/sequence.h"
#include "kit/expert_slots.h"
#include "memory/sequence.h"
#include "memory/sequence_file.h"
#include "native/dense_model.h"
#include "native/device_setup.h"
#include "native/find_weights.h"
#include "native/opened_model.h"

namespace moestro {

// The parts of a run that decide the bits of its keys and values. Everything is borrowed.
struct DecidingParts {
  const OpenedModel& opened;
  const DenseModel& dense;
  const DeviceSetup& devices;
  const ExpertSlots& slots;
  bool is_repeatable = false;  // decisions do not depend on timing
};

class KeptSequences {
 public:
  // All must outlive this.
  // kInvalidRequest: low copies of other weights than the model's. kIo; kInvalidFile: a file has
  // changed.
  static Result<std::unique_ptr<KeptSequences>> Create(const DecidingParts& parts,
                                                       KnownWeights& known,
                                                       SequenceTable& sequences);

  // As in Engine.
  Result<KvOrigin> Origin();
  Status Save(SequenceId sequence, const std::string& notes, const OutputPath& path);
  Result<SavedSequence> Restore(const std::string& path);
  Result<SavedTokens> Peek(const std::string& path);

 private:
  KeptSequences(const DecidingParts& parts, KnownWeights& known, SequenceTable& sequences)
      : parts_(parts), known_(known), sequences_(sequences) {}
  Result<SequenceHome> Home();
  Result<uint64_t> Weights();
  Status CheckLow();

  DecidingParts parts_;
  KnownWeights& known_;
  SequenceTable& sequences_;
  std::optional<uint64_t> low_id_;  // number of the low copies' weights; nullopt: no low copies
  std::string choices_;             // KvChoices::text() of the run as it started
};

}  // namespace moestro
