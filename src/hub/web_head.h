// SPDX-License-Identifier: MIT
// The head of a reply and the parts of a body, as plain values.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace moestro {

// Bytes [begin, end) of a body. Not empty.
struct ByteRange {
  uint64_t begin = 0;
  uint64_t end = 0;

  uint64_t size() const { return end - begin; }
  bool operator==(const ByteRange&) const = default;
};

// The status line and headers of a reply.
struct WebHead {
  int status = 0;
  std::map<std::string, std::string> headers = {};  // names in lower case; of equal ones the last
  std::string redirect = {};  // where a 3xx leads, as a whole address; empty: nowhere

  // nullptr: no such header. `name`: lower case.
  const std::string* Find(const std::string& name) const {
    const auto found = headers.find(name);
    return found != headers.end() ? &found->second : nullptr;
  }
};

}  // namespace moestro
