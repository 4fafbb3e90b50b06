// SPDX-License-Identifier: MIT
// What the hub names a content by.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "hub/content_hash.h"

namespace moestro {

inline std::string Sha256Of(std::string_view text) {
  ContentHash hash(HashKind::kSha256, text.size());
  hash.Add(std::as_bytes(std::span(text)));
  return hash.Finish();
}

}  // namespace moestro
