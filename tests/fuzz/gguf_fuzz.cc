// SPDX-License-Identifier: MIT
// Any bytes as a model file: GgufFile, ReadSpec, ReadWeights and Vocab must return, whatever they
// are given.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "model/gguf_file.h"
#include "model/model_file.h"
#include "model/read_spec.h"
#include "model/vocab.h"
#include "tests/fuzz/memory_file_testing.h"

namespace moestro {
namespace {

void ReadModel(const std::string& path) {
  const auto file = GgufFile::Open(path);
  if (!file) {
    CHECK(!file.error().message.contains('\n'));
    return;
  }
  const auto spec = ReadSpec(*file);
  if (!spec) return;
  const auto weights = ReadWeights(*file, *spec);
  if (!weights) return;
  CHECK(weights->dense_bytes() <= file->file_bytes());
  for (const LayerWeights& layer : weights->layers) {
    for (const ExpertMatrix& matrix : layer.experts.matrices) {
      if (matrix.slices.empty()) continue;  // experts without a gate
      CHECK(matrix.slices.size() == spec->router.n_expert);
      CHECK(matrix.types.size() == matrix.slices.size());
      for (size_t e = 0; e < matrix.slices.size(); ++e) {
        const Extent& slice = matrix.slices[e];
        CHECK(slice.length == ggml_row_size(matrix.types[e], matrix.n_in) * matrix.n_out);
        CHECK(slice.offset + slice.length <= file->file_bytes());
      }
    }
  }
}

void ReadText(const std::string& path) {
  const auto vocab = Vocab::Load(path);
  if (!vocab) {
    CHECK(!vocab.error().message.contains('\n'));
    return;
  }
  for (const bool special : {false, true}) {
    const auto tokens = vocab->Tokenize("hello  w\xC3\xB6rld\n\t 42</s>", special, special);
    if (!tokens) continue;
    for (const Token token : *tokens) {
      CHECK(token >= 0 && static_cast<uint32_t>(token) < vocab->size());
      vocab->Piece(token);
    }
  }
}

}  // namespace
}  // namespace moestro

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const moestro::MemoryFile memory;
  const std::string path = memory.Fill(moestro::AsText(data, size));
  constexpr size_t kDataBytes = size_t{1} << 20;  // of tensors, so that a header may name some
  const bool cut_off = size > 0 && data[size - 1] == 0xFF;
  if (!cut_off) memory.Grow(size + kDataBytes);
  moestro::ReadModel(path);
  moestro::ReadText(path);
  return 0;
}
