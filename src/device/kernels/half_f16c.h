// SPDX-License-Identifier: MIT
// HalfVector's functions by F16C, FMA and AVX2; see isa_tables.h for why they have a file each.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moestro {

void ScaleF16c(uint16_t* y, float factor, size_t n);
void AddScaledF16c(uint16_t* y, const uint16_t* x, float factor, size_t n);

}  // namespace moestro
