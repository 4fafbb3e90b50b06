// SPDX-License-Identifier: MIT
#include "device/state_kernel.h"

#include "device/kernels/cpu_sets.h"
#include "device/kernels/state_kernels.h"

namespace moestro {

std::vector<StateKernel> StateKernel::AllHere() {
  std::vector<StateKernel> kernels;
#if defined(__x86_64__)
  if (HasAvx512()) kernels.push_back(Avx512State());
  if (HasAvx2()) kernels.push_back(Avx2State());
#endif
  kernels.push_back(PortableState());
  return kernels;
}

StateKernel StateKernel::ForThisMachine() { return AllHere().front(); }

}  // namespace moestro
