// SPDX-License-Identifier: MIT
// A part of counted things.
#pragma once

#include <cstdint>

namespace moestro {

// 0 of nothing.
inline double Share(uint64_t part, uint64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

}  // namespace moestro
