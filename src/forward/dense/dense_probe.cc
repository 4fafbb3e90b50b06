// SPDX-License-Identifier: MIT
#include "forward/dense/dense_probe.h"

#include <ggml-backend.h>

#include <cmath>
#include <cstddef>
#include <random>
#include <span>
#include <vector>

#include "device/backend_calls.h"
#include "device/graph_arena.h"
#include "device/made_up_weights.h"
#include "device/weight_set.h"
#include "forward/dense/blocks.h"

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

}  // namespace moestro
