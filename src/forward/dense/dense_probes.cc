// SPDX-License-Identifier: MIT
#include "forward/dense/dense_probes.h"

#include <ggml-backend.h>
#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <span>
#include <vector>

#include "base/number.h"
#include "compute/backend_buffer.h"
#include "compute/backend_calls.h"
#include "compute/row_check.h"
#include "compute/weight_set.h"
#include "core/kv_cells.h"
#include "forward/dense/attended_cells.h"
#include "forward/dense/blocks.h"
#include "memory/layer_values.h"

namespace moestro {
namespace {

constexpr int64_t kIn = 1024;
constexpr int64_t kOut = 512;  // more than one tile of any kernel

std::vector<float> RandomValues(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<std::byte> RandomMatrix(ggml_type type) {
  const std::vector<float> values = RandomValues(size_t{kIn} * kOut, 1);
  std::vector<std::byte> bytes(ggml_row_size(type, kIn) * kOut);
  MakeUpWeights(type, values, kIn, bytes);
  return bytes;
}

Result<std::vector<float>> Multiply(ggml_backend_t backend, WeightSet set,
                                    std::span<const std::byte> matrix, uint32_t rows) {
  TRY_STATUS(set.Allocate());
  TRY_STATUS(set.Store(0, 0, matrix));
  GraphArena arena(backend, 8);
  ggml_context* context = arena.Begin();
  ggml_tensor* x = ggml_new_tensor_2d(context, GGML_TYPE_F32, kIn, rows);
  ggml_set_input(x);
  ggml_tensor* y = Linear(context, set.tensor(0), x, nullptr);
  ggml_set_output(y);
  ggml_build_forward_expand(arena.graph(), y);
  TRY_STATUS(arena.Place());
  const std::vector<float> values = RandomValues(size_t{kIn} * rows, 2);
  TRY_STATUS(CopyTo(x, 0, std::as_bytes(std::span(values))));
  TRY_STATUS(arena.Launch());
  TRY_STATUS(WaitFor(backend));
  std::vector<float> out(size_t{kOut} * rows);
  TRY_STATUS(CopyFrom(y, 0, std::as_writable_bytes(std::span(out))));
  return out;
}

}  // namespace

Result<double> DenseDifference(const ComputeDevice& device, const CpuDevice& cpu, ggml_type type,
                               uint32_t rows) {
  const std::vector<std::byte> matrix = RandomMatrix(type);
  const std::vector<WeightRequest> request = {
      {.name = "matrix", .type = type, .ne = {kIn, kOut, 1, 1}}};
  TRY(const std::vector<float> here,
      Multiply(cpu.backend(), WeightSet::Plan(cpu, request, {.allow_repack = false}), matrix,
               rows));
  TRY(const std::vector<float> there,
      Multiply(device.backend(), WeightSet::PlanOn(device.backend(), request), matrix, rows));
  double difference = 0.0;
  double size = 0.0;
  for (size_t i = 0; i < here.size(); ++i) {
    difference += std::pow(double{there[i]} - here[i], 2);
    size += std::pow(double{here[i]}, 2);
  }
  return difference / size;
}

double MostDenseDifference(ggml_type type) {
  switch (type) {
    case GGML_TYPE_F32:
      return 1e-9;  // half precision gives 1e-7
    case GGML_TYPE_F16:
      return 1e-6;  // the CPU's own rounding of activations gives 4e-8
    case GGML_TYPE_BF16:
      return 1e-5;  // 3e-6
    default:
      return 5e-4;
  }
}

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
  Border border;
  attention.SetRows(rows, border);
  for (const Border::Write& one : border.writes) TRY_STATUS(CopyTo(one.to, one.offset, one.from));
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

namespace {

constexpr size_t kBegins = 65521;          // blocks of the table where a cell may begin
constexpr uint32_t kCellsTogether = 1024;  // cells that are written at once

// Numbers of about N(0, 1): the sum of twelve uniform numbers less six, since a standard library's
// normal_distribution would not promise the same numbers everywhere.
std::vector<std::byte> NormalNumbers(KvType type, size_t n, std::mt19937_64& random) {
  std::vector<float> numbers(n);
  for (float& number : numbers) {
    number = -6.0F;
    for (int i = 0; i < 12; ++i) number += static_cast<float>(random() >> 40) * 0x1p-24F;
  }
  std::vector<std::byte> stored(KvBytes(type, n));
  ToCells(type, numbers, stored);
  return stored;
}

// The number of values of the widest key or value.
uint32_t WidestOf(const MemoryShape& shape) {
  uint32_t widest = 0;
  for (const LayerMemory& layer : shape.layers) {
    widest = std::max({widest, layer.keys, layer.values});
  }
  return widest;
}

}  // namespace

// Cells are pieces of one table, since drawing each number would take longer than evaluating some
// prompts.
Status MakeUpCells(const KvCache& kv, std::span<const CellRun> cells,
                   std::span<const CellRun> recent, uint64_t seed) {
  std::mt19937_64 random(seed);
  const KvTypeInfo& type = InfoOf(kv.type());
  const std::vector<std::byte> table =
      NormalNumbers(kv.type(), kBegins * type.block + WidestOf(kv.shape()), random);
  std::vector<std::byte> rows;
  for (uint32_t layer = 0; layer < kv.layers(); ++layer) {
    const LayerMemory& its = kv.shape().layers[layer];
    if (!its.has_cells() || its.shares_cells) continue;
    const auto fill = [&](KvCache::KvTensor part, const CellRun& run) -> Status {
      for (uint32_t done = 0; done < run.count;) {
        const uint32_t n = std::min(kCellsTogether, run.count - done);
        rows.clear();
        for (uint32_t i = 0; i < n; ++i) {
          const size_t from = random() % kBegins * type.block_bytes;
          rows.append_range(std::span(table).subspan(from, kv.cell_bytes(layer, part)));
        }
        TRY_STATUS(kv.Write(layer, part, run.first + done, rows));
        done += n;
      }
      return {};
    };
    for (const KvCache::KvTensor part : {KvCache::KvTensor::kKeys, KvCache::KvTensor::kValues}) {
      const bool are_of_positions = its.pool == 0 || part == KvCache::KvTensor::kKeys;
      for (const CellRun& run : kv.is_recent(layer) ? recent : cells) {
        if (are_of_positions) TRY_STATUS(fill(part, run));
      }
      for (const CellRun& run : cells) {
        const uint32_t stride = its.pool_stride();
        for (uint32_t c = run.first; its.pool > 0 && c < run.first + run.count; c += stride) {
          TRY_STATUS(fill(part, {.first = kv.pool_cell(layer, part, c), .count = 1}));
        }
      }
    }
  }
  return {};
}

}  // namespace moestro
