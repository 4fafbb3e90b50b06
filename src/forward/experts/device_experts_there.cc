// SPDX-License-Identifier: MIT
// Layers whose rows stay on the device.
#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "device/backend_calls.h"
#include "forward/experts/device_experts.h"
#include "forward/experts/device_products.h"

namespace moestro {
namespace {

// Where the next list of numbers begins in a tensor, on any device.
size_t Aligned(size_t numbers) { return AlignUp(numbers, 64); }

}  // namespace

uint64_t DeviceExperts::BytesThere(const Shape& shape, uint64_t pairs) {
  // What launches give, gathered by row, weighted, and added up.
  return 4 * pairs * shape.n_embd * sizeof(float);
}

Status DeviceExperts::ReserveThere(uint64_t pairs) {
  TRY(results_there_, BackendBuffer::On(device_.backend(), pairs * shape_.n_embd * sizeof(float)));
  return {};
}

Status DeviceExperts::BeginThere(const Part& part, const StepBuffers& rows) {
  const size_t pairs = part.plan.row_of.size();
  CHECK(pairs * shape_.n_embd * sizeof(float) <= results_there_.size());
  BeginPlan(part);
  there_ = &rows;
  n_launched_ = 0;
  launched_as_.assign(pairs, 0);
  return LaunchHeld();
}

// Slots, experts and rows of the pairs go there; x is there, y stays.
Status DeviceExperts::LaunchThere(Flight& flight, uint32_t form, std::span<const Pair> pairs) {
  const auto n = static_cast<int64_t>(pairs.size());
  const size_t length = Aligned(pairs.size());
  const bool is_one_row = plan_->n_rows == 1;
  for (const Pair& pair : pairs) launched_as_[pair.pair] = static_cast<int32_t>(n_launched_++);
  ggml_context* context = flight.arena->Begin();
  ggml_tensor* lists = ggml_new_tensor_1d(context, GGML_TYPE_I32, static_cast<int64_t>(3 * length));
  ggml_set_input(lists);
  const auto ids = [&](size_t list) {
    const size_t offset = list * length * sizeof(int32_t);
    return is_one_row ? ggml_view_2d(context, lists, n, 1, lists->nb[1], offset)
                      : ggml_view_2d(context, lists, 1, n, sizeof(int32_t), offset);
  };
  ggml_tensor* rows = ggml_new_tensor_2d(context, GGML_TYPE_F32, shape_.n_embd, plan_->n_rows);
  there_->Place(rows, StepBuffers::kFfnIn);
  ggml_tensor* x = rows;
  if (!is_one_row) {
    x = ggml_get_rows(context, rows, ggml_view_1d(context, lists, n, 2 * length * sizeof(int32_t)));
  }
  x = ggml_reshape_3d(context, x, shape_.n_embd, 1, is_one_row ? 1 : n);
  ggml_tensor* y = AddProducts(context, flight.arena->graph(), tensors(form), x,
                               {.slots = ids(0), .experts = ids(1)});
  results_there_.Place(y, (n_launched_ - pairs.size()) * shape_.n_embd * sizeof(float));
  TRY_STATUS(PlaceOn(device_, *flight.arena));
  slots_.resize(length);
  slots_.append_range(experts_);
  slots_.resize(2 * length);
  for (const Pair& pair : pairs) slots_.push_back(static_cast<int32_t>(pair.row));
  slots_.resize(3 * length);
  TRY_STATUS(CopyTo(lists, 0, std::as_bytes(std::span(slots_))));
  TRY_STATUS(flight.arena->Launch());
  flight.y = y;
  return {};
}

// hidden [rows][n_embd] from what the launches gave, [launched pair][n_embd].
Status DeviceExperts::Combine() {
  const auto n_used = static_cast<int64_t>(plan_->n_used);
  const auto n_rows = static_cast<int64_t>(plan_->n_rows);
  const int64_t width = shape_.n_embd;
  ggml_context* context = combine_.Begin();
  ggml_tensor* from = ggml_new_tensor_1d(context, GGML_TYPE_I32, n_used * n_rows);
  ggml_tensor* weights = ggml_new_tensor_2d(context, GGML_TYPE_F32, 1, n_used * n_rows);
  ggml_set_input(from);
  ggml_set_input(weights);
  ggml_tensor* results = ggml_new_tensor_2d(context, GGML_TYPE_F32, width, n_launched_);
  results_there_.Place(results, 0);
  // weight * y by row in router order, [n_embd, K, rows]; then the K of each row, one by one.
  ggml_tensor* weighted = ggml_mul(context, ggml_get_rows(context, results, from), weights);
  const auto of = [&](int64_t k) {
    return ggml_view_2d(context, weighted, width, n_rows,
                        static_cast<size_t>(n_used) * weighted->nb[1],
                        static_cast<size_t>(k) * weighted->nb[1]);
  };
  ggml_tensor* sum = of(0);
  for (int64_t k = 1; k < n_used; ++k) sum = ggml_add(context, sum, of(k));
  for (const StepBuffers::Region region : {StepBuffers::kShared, StepBuffers::kResidual}) {
    if (region == StepBuffers::kShared && !shape_.has_shared) continue;
    ggml_tensor* rows = ggml_new_tensor_2d(context, GGML_TYPE_F32, width, n_rows);
    there_->Place(rows, region);
    sum = ggml_add(context, sum, rows);
  }
  there_->Place(sum, StepBuffers::kHidden);
  ggml_build_forward_expand(combine_.graph(), sum);
  TRY_STATUS(PlaceOn(device_, combine_));
  std::vector<int32_t> places;
  for (const uint32_t pair : plan_->pair_of) places.push_back(launched_as_[pair]);
  TRY_STATUS(CopyTo(from, 0, std::as_bytes(std::span(places))));
  TRY_STATUS(CopyTo(weights, 0, std::as_bytes(std::span(plan_->weights))));
  return combine_.Launch();
}

}  // namespace moestro
