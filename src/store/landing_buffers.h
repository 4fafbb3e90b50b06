// SPDX-License-Identifier: MIT
// Memory that reads land in again and again, as buffers that a kernel can keep pinned: a read into
// one need not look up, hold and let go of its pages.
//
// Thread rule: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"

namespace moestro {

// The kernel's limit for one registered buffer.
inline constexpr uint64_t kMostBufferBytes = kGiB;

// The parts of `pieces` that consist of whole huge pages, as buffers of at most `most_bytes`,
// ascending by address; no more than kMostBuffers. The kernel keeps a note of 16 bytes for each
// page of a buffer; with small pages that would be 0.4 % of memory outside every plan, and before
// Linux 6.12 huge pages cost as much. Returns nothing on such kernels, and where the kernel does
// not report which pages are huge.
// REQUIRES: no two pieces overlap; most_bytes is a multiple of 2 MiB.
inline constexpr size_t kMostBuffers = 4096;  // the kernel takes 16384
std::vector<std::span<std::byte>> LandingBuffers(std::span<const std::span<std::byte>> pieces,
                                                 uint64_t most_bytes = kMostBufferBytes);

// The buffer that holds all of `memory`; nullopt: none does. REQUIRES: ascending by address.
std::optional<size_t> BufferOf(std::span<const std::span<std::byte>> buffers,
                               std::span<const std::byte> memory);

}  // namespace moestro
