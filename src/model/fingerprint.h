// SPDX-License-Identifier: MIT
// A number for a model's header. Files about a model (traces, tunings, paths) store this number to
// show which model they belong to.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "model/gguf_file.h"

namespace moestro {

// Depends on the metadata and on every tensor's name, type and shape, not on where the tensors lie:
// a model and its split copy have equal fingerprints. Weights do not count, so two trainings with
// equal metadata also do. Never 0.
uint64_t Fingerprint(const GgufFile& file);

// Parses a fingerprint as stored in keys of Moestro's files. nullopt: not 16 hex digits.
std::optional<uint64_t> ParseFingerprint(std::string_view text);

}  // namespace moestro
