// SPDX-License-Identifier: MIT
// Any bytes as a model file: GgufFile, ReadSpec, ReadWeights and Vocab must return, whatever they
// are given. The file lives in memory under one name for the whole run.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/check.h"
#include "base/format.h"
#include "model/gguf_file.h"
#include "model/read_spec.h"
#include "model/vocab.h"
#include "model/weights.h"

namespace moestro {
namespace {

class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("fuzz", MFD_CLOEXEC)) { CHECK(fd_ >= 0); }
  // Open for the whole run: libFuzzer leaves through exit().
  std::string Fill(const uint8_t* data, size_t size) const {
    CHECK(ftruncate(fd_, 0) == 0);
    for (size_t done = 0; done < size;) {
      const ssize_t wrote = pwrite(fd_, data + done, size - done, static_cast<off_t>(done));
      CHECK(wrote > 0);
      done += static_cast<size_t>(wrote);
    }
    constexpr size_t kDataBytes = size_t{1} << 20;
    const bool cut_off = size > 0 && data[size - 1] == 0xFF;
    if (!cut_off) CHECK(ftruncate(fd_, static_cast<off_t>(size + kDataBytes)) == 0);
    return Format("/proc/self/fd/{}", fd_);
  }

 private:
  int fd_;
};

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
      CHECK(matrix.slices.size() == spec->router.n_expert);
      for (const Extent& slice : matrix.slices) {
        CHECK(slice.length == matrix.slice_bytes);
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
  const std::string path = memory.Fill(data, size);
  moestro::ReadModel(path);
  moestro::ReadText(path);
  return 0;
}
