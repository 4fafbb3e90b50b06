// SPDX-License-Identifier: MIT
#include "compute/expert_kernel.h"

#include <optional>

#include "base/number.h"
#include "compute/cpu_device.h"
#include "compute/kernels/isa.h"

namespace moestro {

size_t ExpertKernel::activation_bytes(int64_t n) const {
  return AlignUp(static_cast<size_t>(n / activation_block) * activation_block_bytes, 64);
}

Result<ExpertKernel> FindExpertKernel(ggml_type type, bool allow_own) {
  if (type < 0 || type >= GGML_TYPE_COUNT) {
    return Fail(Errc::kUnsupported, "tensor type {} is unknown to this ggml",
                static_cast<int>(type));
  }
  TRY(const CpuTraits traits, CpuTraits::Load());
  std::optional<ExpertKernel> kernel =
      traits.found() ? GenericKernel(type, traits) : DequantisingKernel(type);
  if (!kernel) {
    return Fail(Errc::kUnsupported, "ggml's CPU backend cannot multiply matrices of type {}",
                ggml_type_name(type));
  }
  if (!allow_own) return *kernel;
  for (const Isa& isa : IsasHere()) {
    if (const auto own = OwnKernel(type, isa, traits)) kernel = own;
  }
  return *kernel;
}

}  // namespace moestro
