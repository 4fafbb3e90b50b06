// SPDX-License-Identifier: MIT
// What memory gives when nothing is done with it: the denominator of "percent of the limit".
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "device/team.h"

namespace moestro {

// Bytes per second of reading `memory` by a plain loop on every thread of the team, each its own
// part: the best of a few passes, each over up to 256 MiB that the pass before did not touch where
// there is that much, in about 0.2 s. Takes no memory. Memory that fits a cache is read from there.
// No thread may write to it. kInvalidRequest: it is empty.
Result<double> ProbeReadBandwidth(Team& team, std::span<const std::byte> memory);

}  // namespace moestro
