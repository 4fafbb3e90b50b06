// SPDX-License-Identifier: MIT
#include "forward/dense/attention_probe.h"

#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "core/cells.h"
#include "device/backend_calls.h"
#include "device/graph_arena.h"
#include "forward/dense/masked_attention.h"
#include "memory/kv_cache.h"

namespace moestro {
namespace {

std::vector<float> NormalValues(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

// Keys or values as a cache stores them, and the floats that the stored bytes decode to.
struct Cells {
  std::vector<std::byte> stored;
  std::vector<float> values;
};

Cells RandomCells(KvType type, uint32_t n_cells, uint32_t width, uint32_t seed) {
  const size_t n = size_t{n_cells} * width;
  const std::vector<float> exact = NormalValues(n, seed);
  Cells cells{.stored = std::vector<std::byte>(KvBytes(type, n)), .values = std::vector<float>(n)};
  ToCells(type, exact, cells.stored);
  FromCells(type, cells.stored, cells.values);
  return cells;
}

// A prompt from position 0 on. Position p has its keys and values in cell p.
struct Prompt {
  AttentionShape shape;
  uint32_t n_rows = 0;
  uint32_t n_cells = 0;
  Cells k;               // [n_cells][n_head_kv * dim_k]
  Cells v;               // [n_cells][n_head_kv * dim_v]
  std::vector<float> q;  // [n_rows][n_head][dim_k]
};

Prompt RandomPrompt(const AttentionShape& shape, uint32_t rows) {
  const auto n_cells = static_cast<uint32_t>(AlignUp(rows, MaskedAttention::kCells));
  const KvType type = shape.kv_type;
  return {.shape = shape,
          .n_rows = rows,
          .n_cells = n_cells,
          .k = RandomCells(type, n_cells, shape.n_head_kv * shape.dim_k, 1),
          .v = RandomCells(type, n_cells, shape.n_head_kv * shape.dim_v, 2),
          .q = NormalValues(size_t{rows} * shape.n_head * shape.dim_k, 3)};
}

// softmax(q * k / sqrt(dim_k)) * v for one head of a row, over the cells up to the row's own. ->
// out [dim_v]
void AttendPlainly(const Prompt& prompt, uint32_t row, uint32_t head, std::span<double> out) {
  const AttentionShape& s = prompt.shape;
  const uint32_t kv_head = head / (s.n_head / s.n_head_kv);
  const float* q = prompt.q.data() + (size_t{row} * s.n_head + head) * s.dim_k;
  std::vector<double> weights(row + 1);
  for (uint32_t c = 0; c <= row; ++c) {
    const float* key = prompt.k.values.data() + (size_t{c} * s.n_head_kv + kv_head) * s.dim_k;
    for (uint32_t d = 0; d < s.dim_k; ++d) weights[c] += double{q[d]} * double{key[d]};
    weights[c] /= std::sqrt(static_cast<double>(s.dim_k));
  }
  const double largest = *std::ranges::max_element(weights);
  double sum = 0.0;
  for (double& weight : weights) sum += weight = std::exp(weight - largest);
  std::ranges::fill(out, 0.0);
  for (uint32_t c = 0; c <= row; ++c) {
    const size_t cell = size_t{c} * s.n_head_kv + kv_head;
    const float* value = s.values_in_keys ? prompt.k.values.data() + cell * s.dim_k
                                          : prompt.v.values.data() + cell * s.dim_v;
    for (uint32_t d = 0; d < s.dim_v; ++d) out[d] += weights[c] / sum * double{value[d]};
  }
}

// -> [n_rows][n_head][dim_v]
Result<std::vector<float>> AttendThere(ggml_backend_t backend, const Prompt& prompt) {
  const AttentionShape& shape = prompt.shape;
  const std::vector<CellRun> run = {{.first = 0, .count = prompt.n_rows}};
  std::vector<RowCells> rows;
  for (uint32_t r = 0; r < prompt.n_rows; ++r) rows.push_back({.runs = run, .n_positions = r + 1});
  TRY(MaskedAttention attention,
      MaskedAttention::Allocate(backend, shape, prompt.n_rows, prompt.n_cells));
  TRY_STATUS(attention.SetRows(rows));
  GraphArena arena(backend, 16);
  ggml_context* context = arena.Begin();
  const ggml_type type = KvCache::TensorType(shape.kv_type);
  ggml_tensor* queries =
      ggml_new_tensor_3d(context, GGML_TYPE_F32, shape.dim_k, shape.n_head, prompt.n_rows);
  ggml_tensor* keys =
      ggml_new_tensor_2d(context, type, shape.n_head_kv * shape.dim_k, prompt.n_cells);
  ggml_tensor* values =
      ggml_new_tensor_2d(context, type, shape.n_head_kv * shape.dim_v, prompt.n_cells);
  for (ggml_tensor* input : {queries, keys, values}) ggml_set_input(input);
  ggml_tensor* mixed =
      attention.Node(context, queries, {.k = keys, .v = shape.values_in_keys ? nullptr : values},
                     1.0F / std::sqrt(static_cast<float>(shape.dim_k)));
  ggml_set_output(mixed);
  ggml_build_forward_expand(arena.graph(), mixed);
  TRY_STATUS(arena.Place());
  TRY_STATUS(CopyTo(queries, 0, std::as_bytes(std::span(prompt.q))));
  TRY_STATUS(CopyTo(keys, 0, prompt.k.stored));
  if (!shape.values_in_keys) TRY_STATUS(CopyTo(values, 0, prompt.v.stored));
  TRY_STATUS(arena.Launch());
  TRY_STATUS(WaitFor(backend));
  std::vector<float> out(size_t{prompt.n_rows} * shape.n_head * shape.dim_v);
  TRY_STATUS(CopyFrom(mixed, 0, std::as_writable_bytes(std::span(out))));
  return out;
}

}  // namespace

Result<double> AttentionDifference(ggml_backend_t backend, const AttentionShape& shape,
                                   uint32_t rows) {
  const uint32_t group = shape.n_head / shape.n_head_kv;
  AttentionShape s = shape;
  s.window = 0;  // all rows attend to all earlier positions
  s.n_head_kv = std::min(shape.n_head_kv, 2U);
  s.n_head = group * s.n_head_kv;
  const Prompt prompt = RandomPrompt(s, rows);
  TRY(const std::vector<float> there, AttendThere(backend, prompt));
  double difference = 0.0;
  double size = 0.0;
  std::vector<double> here(s.dim_v);
  for (uint32_t i = 0; i < rows * s.n_head; ++i) {
    AttendPlainly(prompt, i / s.n_head, i % s.n_head, here);
    for (uint32_t d = 0; d < s.dim_v; ++d) {
      difference += std::pow(double{there[size_t{i} * s.dim_v + d]} - here[d], 2);
      size += here[d] * here[d];
    }
  }
  return difference / size;
}

}  // namespace moestro
