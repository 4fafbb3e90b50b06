// SPDX-License-Identifier: MIT
// Pages of memory: 4 KiB on x86; 4, 16 or 64 KiB on arm64, as the kernel was built. Thread rule:
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/number.h"

namespace moestro {

// The largest page of a machine that Moestro runs on. Memory that reads land in begins at a
// multiple of this, so that it suits every page and every disk.
inline constexpr uint64_t kMostPageBytes = 64 * kKiB;

// Bytes of a page of this machine.
uint64_t PageBytes();

// The whole pages within `memory`; empty if there is none. REQUIRES: page is a power of two.
std::span<std::byte> WholePages(std::span<std::byte> memory, uint64_t page);

}  // namespace moestro
