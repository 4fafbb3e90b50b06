// SPDX-License-Identifier: MIT
// Writes which experts a text was never routed to.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace moestro {

// One line: "unvisited  5 of 96 experts: 3 in layer 0, 2 in layer 4"; unvisited: [layer with
// experts], each at most `experts`.
std::string UnvisitedText(std::span<const uint32_t> unvisited, uint32_t experts);

}  // namespace moestro
