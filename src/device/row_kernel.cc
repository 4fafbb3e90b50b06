// SPDX-License-Identifier: MIT
#include "device/row_kernel.h"

#include "device/kernels/cpu_sets.h"
#include "device/kernels/row_kernels.h"

namespace moestro {

std::vector<RowKernel> RowKernel::AllHere() {
  std::vector<RowKernel> kernels;
#if defined(__x86_64__)
  if (HasAvx512()) kernels.push_back(Avx512Row());
  if (HasAvx2()) kernels.push_back(Avx2Row());
#endif
  kernels.push_back(PortableRow());
  return kernels;
}

RowKernel RowKernel::ForThisMachine() { return AllHere().front(); }

}  // namespace moestro
