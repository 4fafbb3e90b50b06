// SPDX-License-Identifier: MIT
#include "text/utf8_stream.h"

#include "base/utf8.h"

namespace moestro {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

std::string Utf8Stream::Push(std::string_view bytes) {
  pending_ += bytes;
  std::string whole;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Sequence sequence = ReadUtf8(rest);
    if (sequence.is_open) break;
    whole += sequence.is_valid ? rest.substr(0, sequence.length) : kReplacement;
    rest.remove_prefix(sequence.length);
  }
  pending_ = std::string(rest);
  return whole;
}

std::string Utf8Stream::Flush() {
  if (pending_.empty()) return {};
  pending_.clear();
  return std::string(kReplacement);
}

}  // namespace moestro
