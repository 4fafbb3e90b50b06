// SPDX-License-Identifier: MIT
// Any bytes as a file of tuned policies: ReadTuning() must return, and what it accepts must name
// policies that exist.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "decide/slots/policy.h"
#include "learned/tunings.h"
#include "tests/fuzz/memory_file_testing.h"

namespace moestro {
namespace {

void ReadPolicies(const std::string& path) {
  const auto tuning = ReadTuning(path);
  if (!tuning) {
    CHECK(!tuning.error().message.contains('\n'));
    return;
  }
  CHECK(!tuning->sizes.empty());
  for (const TunedSize& size : tuning->sizes) {
    CHECK(size.slots > 0);
    CHECK(MakePolicy(size.choice).has_value());
  }
}

}  // namespace
}  // namespace moestro

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const moestro::MemoryFile memory;
  moestro::ReadPolicies(memory.Fill(moestro::AsText(data, size)));
  return 0;
}
