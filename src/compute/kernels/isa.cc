// SPDX-License-Identifier: MIT
#include "compute/kernels/isa.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <iterator>
#include <ranges>

#include "compute/cpu_device.h"
#include "compute/kernels/operands.h"

namespace moestro {

// Each table is defined in the file of its set.
extern const IsaKernels kPortableKernels;
extern const IsaKernels kAvx2Kernels;
extern const IsaKernels kAvxVnniKernels;
extern const IsaKernels kAvx512Kernels;
extern const IsaKernels kAvx512VnniKernels;
extern const IsaKernels kNeonKernels;
extern const IsaKernels kNeonDotKernels;

namespace {

#if defined(__x86_64__)
[[maybe_unused]] bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}
[[maybe_unused]] bool HasAvxVnni() { return HasAvx2() && __builtin_cpu_supports("avxvnni"); }
[[maybe_unused]] bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
[[maybe_unused]] bool HasAvx512Vnni() {
  return HasAvx512() && __builtin_cpu_supports("avx512vnni");
}
#elif defined(__aarch64__)
[[maybe_unused]] bool HasDot() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
#endif

// The sets, slowest first. A row may lack a kind of kernels, and a build may lack a row.
constexpr Isa kIsas[] = {
    {"portable", [] { return true; }, &kPortableKernels},
#if defined(MOESTRO_HAS_AVX2)
    {"avx2", HasAvx2, &kAvx2Kernels},
#endif
#if defined(MOESTRO_HAS_AVXVNNI)
    {"avxvnni", HasAvxVnni, &kAvxVnniKernels},
#endif
#if defined(MOESTRO_HAS_AVX512)
    {"avx512", HasAvx512, &kAvx512Kernels},
#endif
#if defined(MOESTRO_HAS_AVX512VNNI)
    {"avx512vnni", HasAvx512Vnni, &kAvx512VnniKernels},
#endif
#if defined(MOESTRO_HAS_NEON)
    {"neon", [] { return true; }, &kNeonKernels},
#endif
#if defined(MOESTRO_HAS_NEONDOT)
    {"neondot", HasDot, &kNeonDotKernels},
#endif
};

// The kernels of one kind that run here, fastest first.
template <class Kernel>
std::vector<Kernel> KernelsHere(const Kernel* IsaKernels::* kind) {
  std::vector<Kernel> kernels;
  for (const Isa& isa : IsasHere() | std::views::reverse) {
    if (isa.kernels->*kind != nullptr) kernels.push_back(*(isa.kernels->*kind));
  }
  return kernels;
}

}  // namespace

std::vector<Isa> IsasHere() {
  std::vector<Isa> here;
  std::ranges::copy_if(kIsas, std::back_inserter(here),
                       [](const Isa& isa) { return isa.works_here(); });
  return here;
}

std::vector<RowKernel> RowKernel::AllHere() { return KernelsHere(&IsaKernels::row); }
RowKernel RowKernel::ForThisMachine() { return AllHere().front(); }

std::vector<AttentionKernel> AttentionKernel::AllHere() {
  return KernelsHere(&IsaKernels::attention);
}
AttentionKernel AttentionKernel::ForThisMachine() { return AllHere().front(); }

std::vector<StateKernel> StateKernel::AllHere() { return KernelsHere(&IsaKernels::state); }
StateKernel StateKernel::ForThisMachine() { return AllHere().front(); }

std::optional<ExpertKernel> OwnKernel(ggml_type type, const Isa& isa, const CpuTraits& traits) {
  if (isa.kernels->experts == nullptr || !traits.found()) return std::nullopt;
  const ExpertFunctions* functions = isa.kernels->experts(type);
  if (functions == nullptr) return std::nullopt;
  ExpertKernel kernel;
  kernel.weight_type = type;
  kernel.activation_type = functions->activation_block == 32 ? GGML_TYPE_Q8_0 : GGML_TYPE_Q8_K;
  kernel.name = isa.name;
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
