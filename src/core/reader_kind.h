// SPDX-License-Identifier: MIT
// Kinds of readers of blocks from files.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace moestro {

enum class ReaderKind : uint8_t { kAuto, kUring, kPread };

// "auto", "uring", "pread"; fails with kUsage listing them.
inline Result<ReaderKind> ParseReaderKind(std::string_view name) {
  if (name == "auto") return ReaderKind::kAuto;
  if (name == "uring") return ReaderKind::kUring;
  if (name == "pread") return ReaderKind::kPread;
  return Fail(Errc::kUsage, "unknown reader '{}' (auto, uring, pread)", name);
}

}  // namespace moestro
