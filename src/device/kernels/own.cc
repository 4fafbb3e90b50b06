// SPDX-License-Identifier: MIT
#include "device/kernels/own.h"

#include "device/kernels/cpu_sets.h"
#include "device/kernels/grids.h"
#include "device/kernels/isa_tables.h"

namespace moestro {
namespace {

const OwnFunctions* Functions(ggml_type type, Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kAvx2:
      return Avx2Functions(type);
    case Isa::kAvxVnni:
      return AvxVnniFunctions(type);
    case Isa::kAvx512Vnni: {
      const OwnFunctions* found = Avx512VnniFunctions32(type);
      if (found == nullptr) found = Avx512VnniFunctions256(type);
      return found != nullptr ? found : Avx512VnniFunctionsGrid(type);
    }
  }
#endif
  return nullptr;
}

}  // namespace

const char* IsaName(Isa isa) {
  constexpr const char* kNames[] = {"avx2", "avxvnni", "avx512vnni"};
  return kNames[static_cast<size_t>(isa)];
}

bool IsaWorksHere(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kAvx2:
      return HasAvx2();
    case Isa::kAvxVnni:
      return HasAvx2() && __builtin_cpu_supports("avxvnni");
    case Isa::kAvx512Vnni:
      return HasAvx512() && __builtin_cpu_supports("avx512vnni");
  }
#endif
  return false;
}

std::optional<ExpertKernel> OwnKernel(ggml_type type, Isa isa, const CpuTraits& traits) {
  const OwnFunctions* functions = Functions(type, isa);
  if (functions == nullptr || !traits.found()) return std::nullopt;
  ExpertKernel kernel;
  kernel.weight_type = type;
  kernel.activation_type = functions->activation_block == 32 ? GGML_TYPE_Q8_0 : GGML_TYPE_Q8_K;
  kernel.name = IsaName(isa);
  kernel.quantise = functions->quantise;
  kernel.multiply = functions->multiply;
  kernel.interleave = functions->interleave;
  kernel.activation_block = functions->activation_block;
  kernel.activation_block_bytes = functions->activation_block_bytes;
  kernel.from_float = traits.Of(kernel.activation_type)->from_float;
  if (kernel.from_float == nullptr) return std::nullopt;
  kernel.grid = GridOf(type, functions->takes_shifted_grid);
  return kernel;
}

}  // namespace moestro
