// SPDX-License-Identifier: MIT
// State of an incomplete file, as the text of its state file (docs/pull.md). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "hub/range_set.h"

namespace moestro {

struct FetchState {
  std::string repo;
  std::string commit;
  std::string file;               // path in the repository
  std::string etag;               // by which the hub names the content: the blob's name
  uint64_t size = 0;              // bytes of the whole file
  std::string content_etag = {};  // ETag of the server that sent the bytes, as it was written
  RangeSet done = {};

  bool operator==(const FetchState&) const = default;
};

inline constexpr size_t kMostStateBytes = size_t{1} << 20;

// The state as one line of JSON.
std::string StateText(const FetchState& state);
// kInvalidFile: not such a text, or ranges that do not lie in the file one behind another.
Result<FetchState> ParseState(std::string_view text);
// Whether the bytes of `state` are part of the wanted content: names and sizes of the content
// agree.
bool MayGoOn(const FetchState& state, const FetchState& wanted);

}  // namespace moestro
