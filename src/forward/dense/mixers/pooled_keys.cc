// SPDX-License-Identifier: MIT
#include "forward/dense/mixers/pooled_keys.h"

#include <algorithm>
#include <cmath>

#include "base/number.h"
#include "memory/layer_values.h"

namespace moestro {

Result<std::unique_ptr<PooledKeys>> PooledKeys::Create(const IndexerSpec& spec, KvType kv_type,
                                                       uint32_t threads) {
  constexpr uint64_t kAlignment = 64;
  std::unique_ptr<PooledKeys> pools(new PooledKeys(spec, kv_type));
  const uint64_t floats = uint64_t{spec.n_pool} * spec.n_remembered() + spec.head_dim;
  pools->thread_bytes_ = AlignUp(floats * sizeof(float), kAlignment);
  TRY(pools->memory_, HostMemory::Allocate(pools->thread_bytes_ * threads));
  return pools;
}

ggml_tensor* PooledKeys::Node(ggml_context* ctx, ggml_tensor* bias) {
  CHECK(bias->type == GGML_TYPE_F32 && ggml_is_contiguous(bias));
  CHECK(bias->ne[0] == spec_.head_dim && bias->ne[1] == spec_.n_pool);
  const auto work = [](ggml_tensor* result, int thread, int n_threads, void* userdata) {
    const auto& self = *static_cast<const PooledKeys*>(userdata);
    auto* members = reinterpret_cast<float*>(self.memory_.data() +
                                             static_cast<size_t>(thread) * self.thread_bytes_);
    const std::span<const RowCells> rows = self.rows_.visible;
    for (size_t r = static_cast<size_t>(thread); r < rows.size();
         r += static_cast<size_t>(n_threads)) {
      const bool is_full = rows[r].n_positions > 0 && rows[r].n_positions % self.spec_.n_pool == 0;
      if (is_full) self.Pool(rows[r], static_cast<const float*>(result->src[0]->data), members);
    }
  };
  return ggml_custom_4d(ctx, GGML_TYPE_I32, 1, 1, 1, 1, &bias, 1, work, GGML_N_TASKS_MAX, this);
}

// Writes the key of the pool that a row's position is the last one of. members: the thread's
// buffer.
void PooledKeys::Pool(const RowCells& row, const float* bias, float* members) const {
  const uint32_t n = spec_.n_remembered();
  const size_t cell_bytes = KvBytes(kv_type_, n);
  const AttentionKernel::ToFloat to_float = kernel_.to_float(kv_type_);
  const uint32_t first = row.n_positions - spec_.n_pool;
  uint32_t last_cell = 0;
  uint32_t at = 0;  // position of a run's first cell
  for (const CellRun& run : row.runs) {
    for (uint32_t p = std::max(at, first); p < std::min(at + run.count, row.n_positions); ++p) {
      last_cell = run.first + (p - at);
      to_float(rows_.cells + last_cell * cell_bytes, members + size_t{p - first} * n, n);
    }
    at += run.count;
  }
  float* key = members + size_t{spec_.n_pool} * n;
  for (uint32_t d = 0; d < spec_.head_dim; ++d) {
    const auto gate = [&](uint32_t j) {
      return members[size_t{j} * n + spec_.head_dim + d] + bias[size_t{j} * spec_.head_dim + d];
    };
    float most = gate(0);
    for (uint32_t j = 1; j < spec_.n_pool; ++j) most = std::max(most, gate(j));
    float weights = 0.0F;
    float sum = 0.0F;
    for (uint32_t j = 0; j < spec_.n_pool; ++j) {
      const float weight = std::exp(gate(j) - most);
      weights += weight;
      sum += weight * members[size_t{j} * n + d];
    }
    key[d] = sum / weights;
  }
  ToCells(kv_type_, {key, spec_.head_dim},
          {rows_.cells + last_cell * cell_bytes, KvBytes(kv_type_, spec_.head_dim)});
}

}  // namespace moestro
