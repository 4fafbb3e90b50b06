// SPDX-License-Identifier: MIT
// Finds NaN and infinity, the results of damaged weights or overflows.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace moestro {

// The first row of `values`, [rows][width], that holds a NaN or an infinity; nullopt: no such row.
// Takes about 0.1 ns a value. REQUIRES: width divides the number of values.
std::optional<size_t> FirstRowNotFinite(std::span<const float> values, size_t width);

}  // namespace moestro
