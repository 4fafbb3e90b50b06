// SPDX-License-Identifier: MIT
// Types at which the kinds of expert matrices are written. Plain values.
#pragma once

#include <ggml.h>

#include <array>
#include <string>
#include <string_view>

#include "base/result.h"
#include "core/ids.h"

namespace moestro {

struct LowTypes {
  // Types by Matrix; GGML_TYPE_COUNT, of gate only: not named, or no gate matrix.
  std::array<ggml_type, kMatrices> types{};
  ggml_type operator[](Matrix m) const { return types[static_cast<size_t>(m)]; }
  std::string text() const;  // "gate=q2_K,up=q2_K,down=q3_K"
};

// "q2_k" for all three, "gate=q2_k,up=q2_k,down=q3_k", or "q2_k,down=q3_k". Only gate may be left
// out, which some models' experts lack. Fails with kUsage.
Result<LowTypes> ParseLowTypes(std::string_view text);

}  // namespace moestro
