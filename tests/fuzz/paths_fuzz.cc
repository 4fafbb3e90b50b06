// SPDX-License-Identifier: MIT
// Any bytes as learned paths: ReadPaths() must return, and what it accepts must rank experts.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "learned/learned_tables.h"
#include "tests/fuzz/memory_file_testing.h"

namespace moestro {
namespace {

void RankAll(const std::string& path) {
  const auto paths = ReadPaths(path);
  if (!paths) {
    CHECK(!paths.error().message.contains('\n'));
    return;
  }
  const MoeShape& shape = paths->table.shape();
  std::vector<ExpertId> best(shape.n_used);
  std::vector<float> scores;
  const std::vector<ExpertId> before{ExpertId{0}};
  for (size_t layer = 1; layer < shape.n_layer; ++layer) {
    const std::span<const ExpertId> earlier = layer >= 2 ? before : std::span<const ExpertId>();
    paths->table.Rank(layer, before, earlier, best, scores);
    for (const ExpertId e : best) CHECK(e.value < shape.n_expert);
  }
}

}  // namespace
}  // namespace moestro

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const moestro::MemoryFile memory;
  moestro::RankAll(memory.FillSummed(data, size));
  return 0;
}
