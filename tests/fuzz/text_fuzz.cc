// SPDX-License-Identifier: MIT
// Any bytes as a saved text of the hosted engine: reading must return, and what is accepted fits
// the context, the vocabulary and the file.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "hosted/hosted_files.h"
#include "tests/fuzz/memory_file_testing.h"

namespace moestro {
namespace {

void CheckText(const SavedTokens& text, const TextHome& home) {
  CHECK(!text.tokens.empty() && text.tokens.size() <= home.n_ctx);
  for (const Token token : text.tokens) {
    CHECK(token >= 0 && static_cast<uint32_t>(token) < home.n_vocab);
  }
  uint32_t before = 0;
  for (const uint32_t position : text.checkpoints) {
    CHECK(position > before && position < text.tokens.size());
    before = position;
  }
}

void UseText(const std::string& path, size_t size) {
  // The seeds' home.
  const TextHome home{.origin = {}, .n_ctx = 64, .n_vocab = 100, .most_bytes = 4096};
  if (const auto text = PeekHosted(path, home)) {
    CheckText(*text, home);
  } else {
    CHECK(!text.error().message.contains('\n'));
  }
  const auto read = ReadHosted(path, home);
  if (!read) {
    CHECK(!read.error().message.contains('\n'));
    return;
  }
  CheckText(read->text, home);
  CHECK(read->memory.parts.size() == read->text.checkpoints.size());
  size_t bytes = read->memory.whole.size();
  for (const HostedMemory::Part& part : read->memory.parts) bytes += part.bytes.size();
  CHECK(bytes <= size && read->memory.whole.size() <= home.most_bytes);
}

}  // namespace
}  // namespace moestro

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const moestro::MemoryFile memory;
  moestro::UseText(memory.FillSummed(data, size), size);
  return 0;
}
