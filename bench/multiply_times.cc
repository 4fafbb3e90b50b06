// SPDX-License-Identifier: MIT
// Multiplies one token by 64 rows of 2048 weights again and again: multiply_times TYPE KERNEL
// TIMES. KERNEL is "ggml" (its dot product in a plain loop), or a set of kernels of ours ("neon"),
// with
// "+" at the end for interleaved rows. bench/instructions.py counts its instructions.
#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compute/cpu_device.h"
#include "compute/kernels/isa.h"
#include "compute/row_check.h"

namespace moestro {
namespace {

constexpr int64_t kIn = 2048;
constexpr int64_t kRows = 64;
constexpr int64_t kDifferentRows = 4;

std::optional<ExpertKernel> FindKernel(ggml_type type, const std::string& name,
                                       const CpuTraits& traits) {
  if (name == "ggml") return GenericKernel(type, traits);
  for (const Isa& isa : IsasHere()) {
    if (isa.name == name) return OwnKernel(type, isa, traits);
  }
  return std::nullopt;
}

// Made with few instructions, since each is a line of qemu's trace.
std::vector<float> RandomFloats(int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31F;
  }
  return values;
}

// Addresses of the code that multiplies, as qemu's -dfilter takes them: this program's, which holds
// our kernels, and the function of ggml's.
void PrintCode(const ExpertKernel& kernel) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (!line.contains("multiply_times") || !line.contains("r-x")) continue;
    const size_t dash = line.find('-');
    std::printf("0x%s..0x%s", line.substr(0, dash).c_str(),
                line.substr(dash + 1, line.find(' ') - dash - 1).c_str());
  }
  const auto function = reinterpret_cast<uintptr_t>(kernel.vec_dot);
  if (function != 0) std::printf(",%#zx..%#zx", function, function + 0x4000);
  std::printf("\n");
}

struct alignas(64) Line {
  std::byte bytes[64];
};

int Run(ggml_type type, std::string name, int times) {
  const auto traits = CpuTraits::Load();
  const bool is_interleaved = name.ends_with("+");
  if (is_interleaved) name.pop_back();
  const auto kernel = traits ? FindKernel(type, name, *traits) : std::nullopt;
  if (!kernel) return 2;
  const size_t row_bytes = ggml_row_size(type, kIn);
  std::vector<std::byte> rows(row_bytes * kRows);
  const size_t made = kDifferentRows * row_bytes;
  MakeUpWeights(type, RandomFloats(kIn * kDifferentRows), kIn, std::span(rows).first(made));
  for (size_t at = made; at < rows.size(); at += made) {
    std::memcpy(&rows[at], rows.data(), made);
  }
  if (is_interleaved) {
    std::vector<std::byte> scratch(row_bytes * ExpertKernel::kInterleavedRows);
    kernel->interleave({rows.data(), row_bytes, kRows}, scratch.data());
  }
  std::vector<Line> token(kernel->activation_bytes(kIn) / sizeof(Line));
  kernel->quantise(*kernel, RandomFloats(kIn).data(), token.front().bytes, kIn);
  const std::byte* activations = token.front().bytes;
  std::vector<float> products(kRows);
  float* out = products.data();
  for (int i = 0; i < times; ++i) {
    kernel->multiply(*kernel, {.rows = rows.data(),
                               .row_bytes = row_bytes,
                               .n_in = kIn,
                               .n_rows = kRows,
                               .activations = &activations,
                               .out = &out,
                               .n_tokens = 1,
                               .is_interleaved = is_interleaved});
  }
  std::printf("%zu bytes, first product %g\n", rows.size(), static_cast<double>(products[0]));
  PrintCode(*kernel);
  return 0;
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  for (int t = 0; t < GGML_TYPE_COUNT; ++t) {
    const auto type = static_cast<ggml_type>(t);
    const char* name = ggml_type_name(type);
    if (name != nullptr && std::string(argv[1]) == name) {
      return moestro::Run(type, argv[2], std::atoi(argv[3]));
    }
  }
  return 2;
}
