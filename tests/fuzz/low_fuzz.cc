// SPDX-License-Identifier: MIT
// Any bytes as low copies of a small model: what is accepted has a slice within the file for each
// of the model's experts.
#include <stdlib.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"
#include "model/gguf_testing.h"
#include "model/low_copies.h"
#include "model/model_file.h"
#include "tests/fuzz/memory_file_testing.h"

namespace moestro {
namespace {

ModelFile SmallModel() {
  std::string path = std::filesystem::temp_directory_path() / "moestro-fuzz-XXXXXX";
  const int fd = mkstemp(path.data());
  CHECK(fd >= 0);
  close(fd);
  SmallMoe("olmoe").Write(path);
  auto model = ModelFile::Open(path);
  unlink(path.c_str());
  CHECK(model.has_value());
  return *std::move(model);
}

void ReadLow(const std::string& path, const ModelFile& model) {
  const auto low = OpenLowCopies(path, model);
  if (!low) {
    CHECK(!low.error().message.contains('\n'));
    return;
  }
  CHECK(low->layers.size() == model.spec.n_expert_layers());
  for (const LayerExperts& layer : low->layers) {
    for (const ExpertMatrix& matrix : layer.matrices) {
      CHECK(matrix.slices.size() == model.spec.router.n_expert);
      for (const Extent& slice : matrix.slices) {
        CHECK(slice.offset + slice.length <= low->gguf.file_bytes());
      }
    }
  }
}

}  // namespace
}  // namespace moestro

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const moestro::MemoryFile memory;
  static const moestro::ModelFile model = moestro::SmallModel();
  const std::string path = memory.Fill(moestro::AsText(data, size));
  constexpr size_t kDataBytes = size_t{1} << 20;  // of tensors, so that a header may name some
  if (size == 0 || data[size - 1] != 0xFF) memory.Grow(size + kDataBytes);
  moestro::ReadLow(path, model);
  return 0;
}
