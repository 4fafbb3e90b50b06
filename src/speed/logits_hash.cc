// SPDX-License-Identifier: MIT
#include "speed/logits_hash.h"

#include <bit>
#include <cstdint>

#include "base/format.h"
#include "base/hash.h"

namespace moestro {

std::string HashLogits(std::span<const float> logits) {
  Fnv1a hash;
  for (const float logit : logits) hash.AddNumber(std::bit_cast<uint32_t>(logit));
  return Format("{:016x}", hash.value());
}

}  // namespace moestro
