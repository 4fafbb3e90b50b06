// SPDX-License-Identifier: MIT
// Uses of experts by decode, kept from one start to the next in a small file of the user's cache,
// by the model's header. Uses are a hint for the order of the first reads and change no result. A
// fault of the folder or of a file costs the hint and is no error.
//
// Thread rule: none, calls share nothing but the file system.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/run_identity.h"

namespace moestro {

// uses: [layer][expert], 0: not used. Empty: none are kept. A malformed file is named in the log.
std::vector<uint8_t> KeptUses(const std::string& folder, const ModelId& model);
void KeepUses(const std::string& folder, const ModelId& model, std::span<const uint8_t> uses);

// The file of that model.
std::string KeptUsesFile(const std::string& folder, const ModelId& model);

}  // namespace moestro
