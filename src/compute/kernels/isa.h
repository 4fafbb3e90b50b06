// SPDX-License-Identifier: MIT
// The kernels of our own in one table, a row for each instruction set. A set is a file
// kernels/isa_<set>.cc, compiled with the set's flags (src/compute/CMakeLists.txt). The option
// MOESTRO_ISAS chooses the sets of a build; at run time the machine uses those of them that it
// supports.
//
// A set's file holds templates over its lane types and nothing else: an inline function of a common
// header compiled there could be the copy that the linker keeps for the whole program.
//
// Thread rule: any thread.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "compute/attention_kernel.h"
#include "compute/expert_kernel.h"
#include "compute/row_kernel.h"
#include "compute/state_kernel.h"

namespace moestro {

class CpuTraits;

// An expert kernel of one weight type. The activation type follows from activation_block: 32 values
// are Q8_0, 256 are Q8_K.
struct ExpertFunctions {
  decltype(ExpertKernel::quantise) quantise;
  decltype(ExpertKernel::multiply) multiply;
  decltype(ExpertKernel::interleave) interleave;
  int64_t activation_block;
  size_t activation_block_bytes;
  bool takes_shifted_grid;  // operands.h
};

// The kernels of an instruction set. Null: the set has no kernel of the kind, and a slower set's is
// used.
struct IsaKernels {
  // By weight type; a null result: no kernel for the type.
  const ExpertFunctions* (*experts)(ggml_type type) = nullptr;
  const RowKernel* row = nullptr;
  const AttentionKernel* attention = nullptr;
  const StateKernel* state = nullptr;
};

struct Isa {
  const char* name;
  bool (*works_here)();  // this processor and its operating system run the set
  const IsaKernels* kernels;
};

// The sets of this build that this machine runs, slowest first. The first, "portable", runs
// everywhere.
std::vector<Isa> IsasHere();

// nullopt: `isa` has no kernel for the type, or `traits` lack ggml's activation quantisation.
// Types and machines without a kernel of ours use the generic one (cpu_device.h).
std::optional<ExpertKernel> OwnKernel(ggml_type type, const Isa& isa, const CpuTraits& traits);

}  // namespace moestro
