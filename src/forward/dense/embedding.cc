// SPDX-License-Identifier: MIT
#include "forward/dense/embedding.h"

#include <algorithm>
#include <cstddef>

namespace moestro {

void EmbedRows(const ggml_tensor& table, float scale, std::span<const StepRow> rows, float* out) {
  const auto* values = static_cast<const std::byte*>(table.data);
  const ggml_to_float_t to_float = ggml_get_type_traits(table.type)->to_float;
  for (const StepRow& row : rows) {
    const std::byte* from = values + static_cast<size_t>(row.token) * table.nb[1];
    if (table.type == GGML_TYPE_F32) {
      std::copy_n(reinterpret_cast<const float*>(from), table.ne[0], out);
    } else {
      to_float(from, out, table.ne[0]);
    }
    if (scale != 1.0F) {
      for (int64_t i = 0; i < table.ne[0]; ++i) out[i] *= scale;
    }
    out += table.ne[0];
  }
}

}  // namespace moestro
