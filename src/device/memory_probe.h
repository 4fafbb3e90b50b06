// SPDX-License-Identifier: MIT
// Bandwidth of memory that is only read: the denominator of "percent of the limit".
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "device/team.h"

namespace moestro {

// Bytes per second of reading `memory` by a plain loop on every thread of the team, each thread its
// own part: the best of a few passes in about 0.2 s. Each pass reads up to 256 MiB, other bytes
// than the pass before where `memory` has enough. Allocates no memory. Memory that fits a cache is
// read from the cache. No thread may write to `memory`. kInvalidRequest: `memory` is empty.
Result<double> ProbeReadBandwidth(Team& team, std::span<const std::byte> memory);

}  // namespace moestro
