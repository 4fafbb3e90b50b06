// SPDX-License-Identifier: MIT
// Expert ids in binary files: a byte each for at most 256 experts, else two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/binary_file.h"
#include "core/ids.h"

namespace moestro {

inline size_t IdBytes(uint32_t n_expert) { return n_expert <= 256 ? 1 : 2; }

inline void AppendIds(std::string& bytes, std::span<const ExpertId> ids, size_t id_bytes) {
  for (const ExpertId id : ids) {
    if (id_bytes == 1) {
      AppendNumber(bytes, static_cast<uint8_t>(id.value));
    } else {
      AppendNumber(bytes, id.value);
    }
  }
}

// REQUIRES: the decoder still holds ids.size() ids.
inline void TakeIds(Decoder& decoder, std::span<ExpertId> ids, size_t id_bytes) {
  for (ExpertId& id : ids) {
    id.value = id_bytes == 1 ? decoder.Take<uint8_t>() : decoder.Take<uint16_t>();
  }
}

}  // namespace moestro
