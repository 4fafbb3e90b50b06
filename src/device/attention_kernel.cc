// SPDX-License-Identifier: MIT
#include "device/attention_kernel.h"

#include "device/kernels/attention_kernels.h"
#include "device/kernels/cpu_sets.h"

namespace moestro {

std::vector<AttentionKernel> AttentionKernel::AllHere() {
  std::vector<AttentionKernel> kernels;
#if defined(__x86_64__)
  if (HasAvx512()) kernels.push_back(Avx512Attention());
  if (HasAvx2()) kernels.push_back(Avx2Attention());
#endif
  kernels.push_back(PortableAttention());
  return kernels;
}

AttentionKernel AttentionKernel::ForThisMachine() { return AllHere().front(); }

}  // namespace moestro
