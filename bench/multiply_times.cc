// SPDX-License-Identifier: MIT
// Multiplies tokens by 64 rows of 2048 weights again and again: multiply_times TYPE KERNEL TIMES
// TOKENS. KERNEL is "ggml" (its dot product in a plain loop, of two rows and two tokens at once
// where ggml has that), or a set of kernels of ours ("neon"), with "+" at the end for interleaved
// rows. bench/instructions.py counts its instructions.
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

// ggml's products of two rows and two tokens at once (SMMLA on arm64). `tokens` lie one behind the
// other. REQUIRES: even numbers of rows and tokens.
void MultiplyByTwos(const ExpertKernel& kernel, const ExpertKernel::Call& call,
                    size_t token_bytes) {
  constexpr size_t kStride = 16;  // between the sums of two tokens
  float sums[2 * kStride];
  for (int64_t t = 0; t < call.n_tokens; t += 2) {
    for (int64_t r = 0; r < call.n_rows; r += 2) {
      kernel.vec_dot(static_cast<int>(call.n_in), sums, kStride,
                     call.rows + static_cast<size_t>(r) * call.row_bytes, call.row_bytes,
                     call.activations[t], token_bytes, 2);
      for (int64_t k = 0; k < 2; ++k) {
        call.out[t + k][r] = sums[static_cast<size_t>(k) * kStride];
        call.out[t + k][r + 1] = sums[static_cast<size_t>(k) * kStride + 1];
      }
    }
  }
}

int Run(ggml_type type, std::string name, int times, int n_tokens) {
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
  const size_t token_bytes = kernel->activation_bytes(kIn);
  std::vector<Line> tokens(token_bytes * static_cast<size_t>(n_tokens) / sizeof(Line) + 1);
  std::vector<const std::byte*> activations;
  std::vector<float> products(static_cast<size_t>(kRows * n_tokens));
  std::vector<float*> out;
  for (int t = 0; t < n_tokens; ++t) {
    std::byte* const token = tokens.front().bytes + token_bytes * static_cast<size_t>(t);
    kernel->quantise(*kernel, RandomFloats(kIn).data(), token, kIn);
    activations.push_back(token);
    out.push_back(products.data() + kRows * t);
  }
  const ExpertKernel::Call call{.rows = rows.data(),
                                .row_bytes = row_bytes,
                                .n_in = kIn,
                                .n_rows = kRows,
                                .activations = activations.data(),
                                .out = out.data(),
                                .n_tokens = n_tokens,
                                .is_interleaved = is_interleaved};
  const bool by_twos = kernel->vec_dot != nullptr && traits->Of(type)->nrows == 2;
  for (int i = 0; i < times; ++i) {
    if (by_twos && n_tokens % 2 == 0) {
      MultiplyByTwos(*kernel, call, token_bytes);
    } else {
      kernel->multiply(*kernel, call);
    }
  }
  std::printf("%zu bytes, first product %g\n", rows.size(), static_cast<double>(products[0]));
  PrintCode(*kernel);
  return 0;
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) {
  if (argc != 5 || std::atoi(argv[4]) < 1) return 2;
  for (int t = 0; t < GGML_TYPE_COUNT; ++t) {
    const auto type = static_cast<ggml_type>(t);
    const char* name = ggml_type_name(type);
    if (name != nullptr && std::string(argv[1]) == name) {
      return moestro::Run(type, argv[2], std::atoi(argv[3]), std::atoi(argv[4]));
    }
  }
  return 2;
}
