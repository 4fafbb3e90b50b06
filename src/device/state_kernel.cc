// SPDX-License-Identifier: MIT
#include "device/state_kernel.h"

#include "device/kernels/state_kernels.h"

namespace moestro {

std::vector<StateKernel> StateKernel::AllHere() {
  std::vector<StateKernel> kernels;
#if defined(__x86_64__)
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("f16c");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (has_avx512) kernels.push_back(Avx512State());
  if (has_avx2) kernels.push_back(Avx2State());
#endif
  kernels.push_back(PortableState());
  return kernels;
}

StateKernel StateKernel::ForThisMachine() { return AllHere().front(); }

}  // namespace moestro
