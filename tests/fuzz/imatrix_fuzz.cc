// SPDX-License-Identifier: MIT
// Any bytes as importances: what is accepted is a number above 0 for each column.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "offline/record/imatrix_file.h"
#include "tests/fuzz/memory_file_testing.h"

namespace moestro {
namespace {

void ReadImportances(const std::string& path) {
  const auto file = ImatrixFile::Open(path);
  if (!file) {
    CHECK(!file.error().message.contains('\n'));
    return;
  }
  const auto read = file->Read("blk.0.ffn_up_exps.weight", 32, 4);
  if (!read) {
    CHECK(!read.error().message.contains('\n'));
    return;
  }
  CHECK(read->columns.size() == size_t{32} * 4);
  CHECK(read->unvisited <= 4);
  for (const float column : read->columns) CHECK(std::isfinite(column) && column > 0.0F);
}

}  // namespace
}  // namespace moestro

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const moestro::MemoryFile memory;
  moestro::ReadImportances(memory.Fill(moestro::AsText(data, size)));
  return 0;
}
