// SPDX-License-Identifier: MIT
// Any bytes as norms and as a sweep, which lie beside a model, and as what a machine's lanes cost:
// reading must return, and what is accepted can be used.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "decide/devices/latency_model.h"
#include "learned/learned_tables.h"
#include "learned/machine_files.h"
#include "learned/quality_choice.h"
#include "learned/tunings.h"
#include "tests/fuzz/memory_file_testing.h"

namespace moestro {
namespace {

void UseNorms(const std::string& path) {
  const auto file = ReadNorms(path);
  if (!file) {
    CHECK(!file.error().message.contains('\n'));
    return;
  }
  const MoeShape& shape = file->norms.shape;
  CHECK(file->norms.values.size() == size_t{shape.n_layer} * shape.n_expert);
  for (const float norm : file->norms.values) CHECK(std::isfinite(norm) && norm >= 0.0F);
}

void UseSweep(const std::string& path) {
  const auto sweep = ReadSweep(path);
  if (!sweep) {
    CHECK(!sweep.error().message.contains('\n'));
    return;
  }
  CHECK(!sweep->settings.empty());
  for (const double wish : {0.0, 0.01, 1e300}) {
    const auto choice = ChooseQuality(sweep->settings, wish);
    if (!choice) continue;
    CHECK(KlBound(sweep->settings.at(choice->chosen)) <= wish);
    CHECK(!Explain(sweep->settings, *choice, wish).contains('\n'));
  }
}

void UseLatency(const std::string& path) {
  const auto file = ReadLatency(path);
  if (!file) {
    CHECK(!file.error().message.contains('\n'));
    return;
  }
  CHECK(CheckLatency(file->model).has_value());
  CHECK(file->model.host.Seconds(1 << 20, 8) >= 0.0);
}

}  // namespace
}  // namespace moestro

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const moestro::MemoryFile memory;
  moestro::UseNorms(memory.FillSummed(data, size));
  const std::string path = memory.Fill(moestro::AsText(data, size));
  moestro::UseSweep(path);
  moestro::UseLatency(path);
  return 0;
}
