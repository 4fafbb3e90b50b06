// SPDX-License-Identifier: MIT
// Facts about a sequence that is saved in a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/ids.h"
#include "engine/sequence.h"

namespace moestro {

// The model, weights and choices that keys, values and states belong to; docs/sequence-format.md
// lists the choices that count.
struct KvOrigin {
  uint64_t model = 0;    // fingerprint of the header
  uint64_t weights = 0;  // model/weights_id.h
  std::string choices;   // KvChoices::text()
  bool operator==(const KvOrigin&) const = default;
};

// A saved text, without its keys and values.
struct SavedTokens {
  std::vector<Token> tokens;
  std::string notes;
  // Positions before the end that the text can go on from, too, where layers have a state; rising.
  std::vector<uint32_t> checkpoints = {};
};

// A sequence that came from a file.
struct SavedSequence {
  Sequence sequence;
  std::string notes;
};

}  // namespace moestro
