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

// What the kernel takes as one buffer.
inline constexpr uint64_t kMostBufferBytes = kGiB;

// The parts of `pieces` that lie in huge pages, whole ones, as buffers of at most `most_bytes`,
// ascending by address; no more than kMostBuffers. The kernel notes 16 bytes for each page of a
// buffer; for small pages that would be 0.4 % of memory that no plan knows of, and before Linux
// 6.12 it is that much for huge ones, too. There, and where the kernel does not tell which pages
// are huge, no memory is worth it.
// REQUIRES: no two pieces overlap; most_bytes is a multiple of 2 MiB.
inline constexpr size_t kMostBuffers = 4096;  // the kernel takes 16384
std::vector<std::span<std::byte>> LandingBuffers(std::span<const std::span<std::byte>> pieces,
                                                 uint64_t most_bytes = kMostBufferBytes);

// The buffer that holds all of `memory`; nullopt: none does. REQUIRES: ascending by address.
std::optional<size_t> BufferOf(std::span<const std::span<std::byte>> buffers,
                               std::span<const std::byte> memory);

}  // namespace moestro
