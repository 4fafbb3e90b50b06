// SPDX-License-Identifier: MIT
// Our own kernels for the types that most models use, one set per instruction set; the choice is
// made at run time. Types and machines without one use the generic kernel.
#pragma once

#include <optional>

#include "device/cpu_device.h"
#include "device/expert_kernel.h"

namespace moestro {

// Instruction sets with kernels of ours, best last.
enum class Isa { kAvx2, kAvxVnni, kAvx512Vnni };
inline constexpr Isa kIsas[] = {Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni};

const char* IsaName(Isa isa);
// Whether this machine and its operating system run `isa`.
bool IsaWorksHere(Isa isa);

// nullopt without a kernel for this type and instruction set, or without ggml's activation
// quantisation in `traits`. Does not ask whether the machine runs it.
std::optional<ExpertKernel> OwnKernel(ggml_type type, Isa isa, const CpuTraits& traits);

}  // namespace moestro
