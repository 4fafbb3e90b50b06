// SPDX-License-Identifier: MIT
#include "device/attention_kernel.h"

#include "device/kernels/attention_kernels.h"

namespace moestro {

std::vector<AttentionKernel> AttentionKernel::AllHere() {
  std::vector<AttentionKernel> kernels;
#if defined(__x86_64__)
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("f16c");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (has_avx512) kernels.push_back(Avx512Attention());
  if (has_avx2) kernels.push_back(Avx2Attention());
#endif
  kernels.push_back(PortableAttention());
  return kernels;
}

AttentionKernel AttentionKernel::ForThisMachine() { return AllHere().front(); }

}  // namespace moestro
