// SPDX-License-Identifier: MIT
#include "devices/local_transport.h"

#include <ggml-backend.h>
#include <ggml.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/result.h"
#include "compute/backend_calls.h"
#include "compute/product_node.h"

namespace moestro {

LaunchGraphs::LaunchGraphs(DeviceLink& link, size_t max_nodes)
    : link_(link),
      max_nodes_(max_nodes),
      arena_(link.device().backend(), max_nodes),
      other_{.room = GraphRoom(max_nodes)} {}

LaunchGraph& LaunchGraphs::RoomFor(std::span<const uint32_t> key) {
  if (key.empty()) return other_;
  if (kept_.size() < kMostKept) return kept_.emplace_front(GraphRoom(max_nodes_));
  kept_.splice(kept_.begin(), kept_, std::prev(kept_.end()));
  return kept_.front();
}

Result<LaunchGraph*> LaunchGraphs::Get(std::span<const uint32_t> key,
                                       const std::function<void(LaunchGraph&)>& build) {
  const auto same = [&](const LaunchGraph& kept) { return std::ranges::equal(kept.key, key); };
  const auto found = key.empty() ? kept_.end() : std::ranges::find_if(kept_, same);
  if (found != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, found);
    return &kept_.front();
  }
  LaunchGraph& graph = RoomFor(key);
  graph.inputs.clear();
  graph.results.clear();
  graph.key.clear();  // a graph that cannot be placed is not found again
  arena_.Begin(&graph.room);
  build(graph);
  link_.CountBuilt();
  const Status placed = arena_.Place();
  if (!placed || arena_.buffer_bytes() != placed_bytes_) {  // the values of kept graphs have moved
    for (LaunchGraph& kept : kept_) kept.key.clear();
  }
  placed_bytes_ = placed ? arena_.buffer_bytes() : 0;
  if (!placed) {
    if (placed.error().code == Errc::kDevice) return std::unexpected(placed.error());
    return Fail(Errc::kDevice, "the device {} has no room for a launch",
                link_.device().info().name);
  }
  graph.key.assign(key.begin(), key.end());
  return &graph;
}

namespace {

// The begin of the next list, aligned for every device.
size_t Aligned(size_t numbers) { return AlignUp(numbers, 64); }

}  // namespace

void PairLists::Assign(const DevicePools& pools, uint32_t form,
                       std::span<const Transport::Pair> pairs) {
  const auto piece_of = [&](const Transport::Pair& pair) {
    return pools.Find(form, pair.slot).piece;
  };
  pairs_.assign(pairs.begin(), pairs.end());
  if (pools.most_pieces() > 1) std::ranges::stable_sort(pairs_, {}, piece_of);
  parts_.clear();
  numbers_.clear();
  for (size_t i = 0; i < pairs_.size(); ++i) {
    const size_t piece = piece_of(pairs_[i]);
    if (parts_.empty() || parts_.back().piece != piece) {
      parts_.push_back({.piece = piece, .first = i});
    }
    ++parts_.back().n;
  }
  for (Part& part : parts_) {
    part.slots_at = numbers_.size();
    part.experts_at = part.slots_at + Aligned(part.n);
    Append(part, pools, form);
  }
  rows_at_ = numbers_.size();
  for (const Transport::Pair& pair : pairs_) numbers_.push_back(static_cast<int32_t>(pair.row));
  numbers_.resize(Aligned(numbers_.size()));
}

void PairLists::Append(const Part& part, const DevicePools& pools, uint32_t form) {
  const auto its = std::span(pairs_).subspan(part.first, part.n);
  for (const Transport::Pair& pair : its) {
    numbers_.push_back(static_cast<int32_t>(pools.Find(form, pair.slot).slot));
  }
  numbers_.resize(part.experts_at);
  for (const Transport::Pair& pair : its) numbers_.push_back(pair.expert.value);
  numbers_.resize(part.experts_at + Aligned(part.n));
}

namespace {

// Repeats compute/product_node.cc operation by operation: gate / (1 + exp(-gate)) * up. Each
// operation rounds once, as in C, and exp is the C library's.
ggml_tensor* ActivateExactly(ggml_context* context, Activation activation, ggml_tensor* gate,
                             ggml_tensor* up) {
  if (activation == Activation::kReluSquared) return ggml_sqr(context, ggml_relu(context, up));
  if (activation == Activation::kRelu) return ggml_relu(context, up);
  ggml_tensor* power = ggml_exp(context, ggml_neg(context, gate));
  ggml_tensor* divisor = ggml_scale_bias(context, power, 1.0F, 1.0F);
  return ggml_mul(context, ggml_div(context, gate, divisor), up);
}

}  // namespace

bool HasExactForm(Activation activation) {
  return activation == Activation::kSwiglu || activation == Activation::kSwigluGate ||
         !HasGate(activation);
}

ggml_tensor* AddProducts(ggml_context* context, ggml_cgraph* graph, const ExpertTensors& tensors,
                         ggml_tensor* x, const PairIds& ids) {
  const auto product = [&](Matrix matrix, ggml_tensor* in) {
    const auto m = static_cast<size_t>(matrix);
    ggml_tensor* out = ggml_mul_mat_id(context, tensors.matrix[m], in, ids.slots);
    if (tensors.bias[m] == nullptr) return out;
    return ggml_add_id(context, out, tensors.bias[m], ids.experts);
  };
  // Order: up, gate, then the activation, of which CUDA makes one kernel.
  ggml_tensor* up = product(Matrix::kUp, x);
  ggml_tensor* gate = HasGate(tensors.activation) ? product(Matrix::kGate, x) : nullptr;
  ggml_tensor* joined = tensors.is_exact ? ActivateExactly(context, tensors.activation, gate, up)
                                         : Activate(context, tensors.activation, gate, up);
  ggml_tensor* y = product(Matrix::kDown, joined);
  ggml_build_forward_expand(graph, up);
  ggml_build_forward_expand(graph, y);
  return y;
}

namespace {

constexpr size_t kNodes = 32;  // nodes of a piece
// Rows of launches whose graphs stay built, at most.
constexpr uint32_t kMostKeptRows = 16;

// Nodes of AddSum().
size_t SumNodes(const LaunchShape& shape) { return 16 + 3 * size_t{shape.n_used}; }

// Inputs of a launch, for asking which nodes a device computes.
struct LaunchInputs {
  ggml_tensor* x;
  PairIds ids;

  LaunchInputs(ggml_context* context, int64_t n_embd, int64_t pairs, bool is_one_row)
      : x(ggml_new_tensor_3d(context, GGML_TYPE_F32, n_embd, 1, is_one_row ? 1 : pairs)) {
    for (ggml_tensor** list : {&ids.slots, &ids.experts}) {
      *list = is_one_row ? ggml_new_tensor_2d(context, GGML_TYPE_I32, pairs, 1)
                         : ggml_new_tensor_2d(context, GGML_TYPE_I32, 1, pairs);
      ggml_set_input(*list);
    }
    ggml_set_input(x);
  }
};

}  // namespace

bool LocalTransport::Supports(const ComputeDevice& device, const CopyForm& form,
                              const LaunchShape& shape) {
  if (shape.has_limits) return false;
  const ggml_init_params params{
      .mem_size = kNodes * ggml_tensor_overhead() + 2 * ggml_graph_overhead_custom(kNodes, false),
      .mem_buffer = nullptr,
      .no_alloc = true};
  const ggml_context_ptr context(ggml_init(params));
  // The backend decides by the weights' buffer; an empty buffer is enough.
  const Result<BufferPtr> buffer =
      AllocateBuffer(ggml_backend_get_default_buffer_type(device.backend()), 0);
  if (!buffer) return false;
  ExpertTensors tensors{.activation = shape.activation, .is_exact = shape.is_exact};
  for (size_t m = 0; m < kMatrices; ++m) {
    if (!form.has(m)) continue;
    const bool is_down = static_cast<Matrix>(m) == Matrix::kDown;
    const int64_t n_out = is_down ? form.n_embd : form.n_ff;
    tensors.matrix[m] = ggml_new_tensor_3d(context.get(), static_cast<ggml_type>(form.types[m]),
                                           is_down ? form.n_ff : form.n_embd, n_out, 2);
    tensors.matrix[m]->buffer = buffer->get();
    if (shape.bias_bytes == 0) continue;
    tensors.bias[m] = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, n_out, 2);
    tensors.bias[m]->buffer = buffer->get();
  }
  for (const bool is_one_row : {true, false}) {
    ggml_cgraph* graph = ggml_new_graph_custom(context.get(), kNodes, false);
    const LaunchInputs in(context.get(), form.n_embd, 1, is_one_row);
    AddProducts(context.get(), graph, tensors, in.x, in.ids);
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
      if (!Computes(device.handle(), ggml_graph_node(graph, i))) return false;
    }
  }
  return true;
}

uint64_t LocalTransport::WorkBytes(const LaunchShape& shape) {
  uint64_t floats = 2 * uint64_t{shape.n_embd} + 3 * uint64_t{shape.n_ff} + 1;
  // Biases add a sum beside each product, and another list of ids.
  if (shape.bias_bytes > 0) floats += shape.n_embd + 2 * uint64_t{shape.n_ff} + 1;
  return kFlights * shape.most_pairs * floats * sizeof(float) + 16 * kMiB + shape.bias_bytes;
}

LocalTransport::LocalTransport(DeviceLink& link, std::span<const CopyForm> forms, Weights weights,
                               const LaunchShape& shape, bool spoils_results)
    : link_(link),
      device_(link.device()),
      n_forms_(forms.size()),
      weights_(std::move(weights)),
      shape_(shape),
      spoils_results_(spoils_results),
      combine_(link_, SumNodes(shape)) {
  for (Flight& flight : flights_) {
    flight.graphs = std::make_unique<LaunchGraphs>(
        link_, kNodes * std::max<size_t>(weights_.pools.most_pieces(), 1) + SumNodes(shape));
  }
}

LocalTransport::~LocalTransport() {
  // Finish() does not wait for rows that stay on the device.
  [[maybe_unused]] const Status ended = link_.Finish();
}

void LocalTransport::Begin(const LayerPlan& plan, const float* ffn_in, float* results) {
  plan_ = &plan;
  there_ = nullptr;
  ffn_in_ = ffn_in;
  results_ = results;
  next_flight_ = 0;  // equal launches of every token find the graphs of the same flight
}

void LocalTransport::BeginThere(const LayerPlan& plan, const StepBuffers& rows, uint32_t pairs) {
  CHECK(uint64_t{pairs} * shape_.n_embd * sizeof(float) <= results_there_.size());
  plan_ = &plan;
  there_ = &rows;
  n_mine_ = pairs;
  n_launched_ = 0;
  is_summed_ = false;
  next_flight_ = 0;
  launched_as_.assign(plan.row_of.size(), -1);
}

uint64_t LocalTransport::BytesOf(uint32_t form, Matrix matrix) const {
  const ggml_tensor* tensor = weights_.pools.tensor(form, 0, matrix);
  return tensor == nullptr ? 0 : DevicePools::SliceBytes(tensor);
}

LocalTransport::Place LocalTransport::Find(const Target& target) const {
  const DevicePools::SlotAddress place = weights_.pools.Find(target.form, target.slot);
  ggml_tensor* tensor = weights_.pools.tensor(target.form, place.piece, target.matrix);
  return {.tensor = tensor, .offset = place.slot * DevicePools::SliceBytes(tensor) + target.offset};
}

Status LocalTransport::Write(const Target& to, std::span<const std::byte> bytes) {
  const Place place = Find(to);
  return CopyTo(place.tensor, place.offset, bytes);
}

Status LocalTransport::Read(const Target& from, std::span<std::byte> bytes) const {
  const Place place = Find(from);
  return CopyFrom(place.tensor, place.offset, bytes);
}

Result<uint64_t> LocalTransport::BeginWrite(const Target& to, std::span<const std::byte> bytes) {
  if (copy_way_ == CopyWay::kBlocking) return Transport::BeginWrite(to, bytes);
  const Place place = Find(to);
  return ring_->Begin(place.tensor, place.offset, bytes, copy_way_ == CopyWay::kPinned);
}

Status LocalTransport::AwaitWrite(uint64_t number) { return ring_->Await(number); }

bool LocalTransport::SetCopyWay(CopyWay way) {
  if (way == CopyWay::kBlocking) ring_.reset();
  if (way != CopyWay::kBlocking && !ring_) {
    Result<std::unique_ptr<CopyRing>> ring = CopyRing::Create(device_);
    if (!ring) return false;
    ring_ = *std::move(ring);
  }
  copy_way_ = way;
  return true;
}

ExpertTensors LocalTransport::tensors(ExpertLayerId layer, uint32_t form, size_t piece) const {
  const DevicePools& pools = weights_.pools;
  return {
      .matrix = {pools.tensor(form, piece, Matrix::kGate), pools.tensor(form, piece, Matrix::kUp),
                 pools.tensor(form, piece, Matrix::kDown)},
      .bias = weights_.biases.of(layer),
      .activation = shape_.activation,
      .is_exact = shape_.is_exact};
}

Status LocalTransport::Launch(uint32_t form, std::span<const Pair> pairs) {
  CHECK(form < n_forms_ && pairs.size() <= shape_.most_pairs);
  Flight& flight = flights_[next_flight_++ % kFlights];
  TRY_STATUS(Collect({&flight, 1}));
  lists_.Assign(weights_.pools, form, pairs);
  return there_ != nullptr ? LaunchThere(flight, form) : LaunchHere(flight, form);
}

// All that the nodes of a launch depend on; empty for launches of many rows, whose building does
// not count. `first`: place of the first result on the device.
std::vector<uint32_t> LocalTransport::KeyOf(uint32_t form, uint32_t first) const {
  if (plan_->n_rows > kMostKeptRows) return {};
  const bool stays = there_ != nullptr;
  std::vector<uint32_t> key = {stays, form, plan_->n_rows, first};
  if (stays) key.insert(key.end(), {is_summed_, SumWidth()});
  if (shape_.bias_bytes > 0) key.push_back(plan_->layer.value);
  for (const PairLists::Part& part : lists_.parts()) {
    key.push_back(static_cast<uint32_t>(part.piece));
    key.push_back(static_cast<uint32_t>(part.n));
  }
  return key;
}

// Stage: graph, x [pairs][n_embd] ([1][n_embd] for one row) -> y [pairs][n_embd], part by part.
void LocalTransport::AddParts(LaunchGraph& graph, uint32_t form, ggml_tensor* x,
                              ggml_tensor* numbers) const {
  ggml_context* context = graph.room.context();
  const bool is_one_row = plan_->n_rows == 1;
  for (const PairLists::Part& part : lists_.parts()) {
    const auto n = static_cast<int64_t>(part.n);
    const auto list = [&](size_t at) {
      const size_t offset = at * sizeof(int32_t);
      return is_one_row ? ggml_view_2d(context, numbers, n, 1, numbers->nb[1], offset)
                        : ggml_view_2d(context, numbers, 1, n, sizeof(int32_t), offset);
    };
    ggml_tensor* its_x = x;
    if (!is_one_row && lists_.parts().size() > 1) {
      its_x = ggml_view_3d(context, x, x->ne[0], 1, n, x->nb[1], x->nb[2], part.first * x->nb[2]);
    }
    graph.results.push_back(
        AddProducts(context, graph.room.graph(), tensors(plan_->layer, form, part.piece), its_x,
                    {.slots = list(part.slots_at), .experts = list(part.experts_at)}));
  }
}

// Stage: one launch with rows in memory: x [pairs][n_embd] and numbers -> y [pairs][n_embd] on the
// device.
Status LocalTransport::LaunchHere(Flight& flight, uint32_t form) {
  const std::span<const Pair> pairs = lists_.pairs();
  const bool is_one_row = plan_->n_rows == 1;
  const size_t width = shape_.n_embd;
  flight.pairs.clear();
  // Stage: gather x, [pairs][n_embd] from ffn_in [rows][n_embd]; [1][n_embd] for one row.
  x_.resize((is_one_row ? 1 : pairs.size()) * width);
  for (size_t i = 0; i < pairs.size(); ++i) {
    flight.pairs.push_back(pairs[i].pair);
    if (i > 0 && is_one_row) continue;
    std::memcpy(x_.data() + i * width, ffn_in_ + pairs[i].row * width, width * sizeof(float));
  }
  const auto build = [&](LaunchGraph& graph) {
    ggml_context* context = graph.room.context();
    ggml_tensor* numbers =
        ggml_new_tensor_1d(context, GGML_TYPE_I32, static_cast<int64_t>(lists_.numbers().size()));
    ggml_tensor* x = ggml_new_tensor_3d(context, GGML_TYPE_F32, shape_.n_embd, 1,
                                        is_one_row ? 1 : static_cast<int64_t>(pairs.size()));
    ggml_set_input(numbers);
    ggml_set_input(x);
    graph.inputs = {x, numbers};
    AddParts(graph, form, x, numbers);
    for (ggml_tensor* its : graph.results) ggml_set_output(its);
  };
  TRY(LaunchGraph* const graph, flight.graphs->Get(KeyOf(form, 0), build));
  // Stage: send x and the numbers, then launch.
  TRY_STATUS(
      link_.Cross({.writes = {{.to = graph->inputs[0], .from = std::as_bytes(std::span(x_))},
                              {.to = graph->inputs[1], .from = std::as_bytes(lists_.numbers())}}}));
  TRY_STATUS(link_.Launch(graph->room.graph()));
  flight.y = graph->results;
  return {};
}

// Stage: waits for launches and copies y [pairs][n_embd] of each to results [pair][n_embd].
Status LocalTransport::Collect(std::span<Flight> flights) {
  const size_t width = shape_.n_embd;
  Border border;
  std::vector<uint32_t> pairs;
  std::vector<const ggml_tensor*> y;
  for (Flight& flight : flights) {
    if (flight.y.empty()) continue;
    y.append_range(std::exchange(flight.y, {}));
    pairs.append_range(flight.pairs);
  }
  if (y.empty()) return {};
  if (there_ != nullptr) return link_.Finish();  // the results stay on the device
  x_.resize(pairs.size() * width);
  std::span<float> to(x_);
  for (const ggml_tensor* its : y) {
    const auto n = static_cast<size_t>(ggml_nelements(its));
    border.reads.push_back({.from = its, .to = std::as_writable_bytes(to.first(n))});
    to = to.subspan(n);
  }
  TRY_STATUS(link_.Cross(border));
  if (spoils_results_) {
    for (float& value : x_) value *= 1.1F;
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    std::memcpy(results_ + pairs[i] * width, x_.data() + i * width, width * sizeof(float));
  }
  return {};
}

Status LocalTransport::Finish() {
  if (there_ != nullptr) {
    if (!is_summed_) TRY_STATUS(Combine());
    for (Flight& flight : flights_) flight.y.clear();  // no later call waits for these launches
    plan_ = nullptr;
    return {};
  }
  TRY_STATUS(Collect(flights_));
  plan_ = nullptr;
  return {};
}

void LocalTransport::Abandon() {
  // An error has no effect: no result is used.
  [[maybe_unused]] const Status ended = link_.Finish();
  for (Flight& flight : flights_) flight.y.clear();
  plan_ = nullptr;
}

uint64_t LocalTransport::BytesThere(const LaunchShape& shape, uint64_t pairs) {
  // Results of launches; those of some rows gathered by row, weighted, and added up.
  const uint64_t at_once = std::min(pairs, uint64_t{kMostSummed} * std::max(shape.n_used, 1U));
  return (pairs + 3 * at_once) * shape.n_embd * sizeof(float);
}

Status LocalTransport::ReserveThere(uint64_t pairs) {
  TRY(results_there_, BackendBuffer::On(device_.backend(), pairs * shape_.n_embd * sizeof(float)));
  return {};
}

// Stage: one launch with rows on the device: the numbers of the pairs are sent; x [pairs][n_embd]
// is gathered from ffn_in [rows][n_embd]; y [pairs][n_embd] stays. A launch of all of the device's
// pairs also adds up.
Status LocalTransport::LaunchThere(Flight& flight, uint32_t form) {
  const std::span<const Pair> pairs = lists_.pairs();
  const auto n = static_cast<int64_t>(pairs.size());
  const bool is_one_row = plan_->n_rows == 1;
  const uint32_t first = n_launched_;
  // The values of a sum of many rows take more memory than a launch has.
  is_summed_ = pairs.size() == n_mine_ && plan_->n_rows * SumWidth() <= shape_.most_pairs;
  for (const Pair& pair : pairs) launched_as_[pair.pair] = static_cast<int32_t>(n_launched_++);
  const auto build = [&](LaunchGraph& graph) {
    ggml_context* context = graph.room.context();
    ggml_tensor* numbers =
        ggml_new_tensor_1d(context, GGML_TYPE_I32, static_cast<int64_t>(lists_.numbers().size()));
    ggml_set_input(numbers);
    graph.inputs = {numbers};
    // Stage: gather x, [pairs][n_embd] from ffn_in [rows][n_embd] on the device.
    ggml_tensor* rows = ggml_new_tensor_2d(context, GGML_TYPE_F32, shape_.n_embd, plan_->n_rows);
    there_->Place(rows, StepBuffers::kFfnIn);
    ggml_tensor* x = rows;
    if (!is_one_row) {
      x = ggml_get_rows(context, rows,
                        ggml_view_1d(context, numbers, n, lists_.rows_at() * sizeof(int32_t)));
    }
    x = ggml_reshape_3d(context, x, shape_.n_embd, 1, is_one_row ? 1 : n);
    // Stage: x [pairs][n_embd] -> y [pairs][n_embd], into results_there_ or the sum.
    AddParts(graph, form, x, numbers);
    if (is_summed_) {
      ggml_tensor* all = nullptr;  // [launched pair][n_embd]
      for (ggml_tensor* y : graph.results) {
        y = ggml_reshape_2d(context, y, shape_.n_embd, ggml_nelements(y) / shape_.n_embd);
        all = all == nullptr ? y : ggml_concat(context, all, y, 1);
      }
      AddSum(graph, all, {.n = plan_->n_rows});
      return;
    }
    for (size_t i = 0; i < graph.results.size(); ++i) {
      const size_t place = first + lists_.parts()[i].first;
      results_there_.Place(graph.results[i], place * shape_.n_embd * sizeof(float));
    }
  };
  TRY(LaunchGraph* const graph, flight.graphs->Get(KeyOf(form, first), build));
  // Stage: send the numbers, then launch.
  Border border;
  border.writes.push_back({.to = graph->inputs[0], .from = std::as_bytes(lists_.numbers())});
  if (is_summed_) AddSumInputs(*graph, {.n = plan_->n_rows}, border);
  TRY_STATUS(link_.Cross(border));
  TRY_STATUS(link_.Launch(graph->room.graph()));
  flight.y = graph->results;
  return {};
}

// Stage: graph, results [launched pair][n_embd] -> hidden [rows][n_embd] of some rows. The last two
// inputs are the results' places [rows * K'] and the router's weights [rows * K'], K' = SumWidth().
void LocalTransport::AddSum(LaunchGraph& graph, ggml_tensor* results,
                            const RowRange& of_rows) const {
  const auto n_used = static_cast<int64_t>(SumWidth());
  const auto n_rows = static_cast<int64_t>(of_rows.n);
  const int64_t width = shape_.n_embd;
  ggml_context* context = graph.room.context();
  ggml_tensor* from = ggml_new_tensor_1d(context, GGML_TYPE_I32, n_used * n_rows);
  ggml_tensor* weights = ggml_new_tensor_2d(context, GGML_TYPE_F32, 1, n_used * n_rows);
  ggml_set_input(from);
  ggml_set_input(weights);
  graph.inputs.push_back(from);
  graph.inputs.push_back(weights);
  // Stage: weight * y in router order, [rows * K'][n_embd]; then the sum of each row's K' results
  // in router order.
  ggml_tensor* weighted = ggml_mul(context, ggml_get_rows(context, results, from), weights);
  const uint64_t skip_bytes = uint64_t{of_rows.first} * shape_.n_embd * sizeof(float);
  const auto of = [&](int64_t k) {
    return ggml_view_2d(context, weighted, width, n_rows,
                        static_cast<size_t>(n_used) * weighted->nb[1],
                        static_cast<size_t>(k) * weighted->nb[1]);
  };
  ggml_tensor* sum = of(0);
  for (int64_t k = 1; k < n_used; ++k) sum = ggml_add(context, sum, of(k));
  // Stage: + shared [rows][n_embd], if the model has one, + residual [rows][n_embd].
  for (const StepBuffers::Region region : {StepBuffers::kShared, StepBuffers::kResidual}) {
    if (region == StepBuffers::kShared && !shape_.has_shared) continue;
    if (region == StepBuffers::kResidual && !shape_.adds_residual) continue;
    ggml_tensor* rows = ggml_new_tensor_2d(context, GGML_TYPE_F32, width, n_rows);
    there_->Place(rows, region, skip_bytes);
    sum = ggml_add(context, sum, rows);
  }
  there_->Place(sum, StepBuffers::kHidden, skip_bytes);
  ggml_build_forward_expand(graph.room.graph(), sum);
}

void LocalTransport::AddSumInputs(const LaunchGraph& graph, const RowRange& of_rows,
                                  Border& border) {
  const std::span inputs = std::span(graph.inputs).last(2);
  const size_t first = size_t{of_rows.first} * plan_->n_used;
  const size_t n = size_t{of_rows.n} * plan_->n_used;
  places_.clear();
  weights_of_sum_.clear();
  for (size_t i = first; i < first + n; ++i) {
    const uint32_t pair = plan_->pair_of[i];
    const int32_t place = pair == kNoPair ? -1 : launched_as_[pair];
    if (place < 0 && plan_->n_rows == 1) continue;
    places_.push_back(std::max(place, 0));
    weights_of_sum_.push_back(place < 0 ? 0.0F : plan_->weights[i]);
  }
  border.writes.push_back({.to = inputs[0], .from = std::as_bytes(std::span(places_))});
  border.writes.push_back({.to = inputs[1], .from = std::as_bytes(std::span(weights_of_sum_))});
}

// Stage: results [launched pair][n_embd] -> hidden [rows][n_embd], one launch for kMostSummed rows.
Status LocalTransport::Combine() {
  for (uint32_t first = 0; first < plan_->n_rows; first += kMostSummed) {
    if (first > 0) TRY_STATUS(link_.Finish());  // the launches share their inputs' memory
    TRY_STATUS(CombineRows({.first = first, .n = std::min(kMostSummed, plan_->n_rows - first)}));
  }
  return {};
}

Status LocalTransport::CombineRows(const RowRange& of_rows) {
  const auto build = [&](LaunchGraph& graph) {
    ggml_tensor* results = ggml_new_tensor_2d(graph.room.context(), GGML_TYPE_F32, shape_.n_embd,
                                              static_cast<int64_t>(n_launched_));
    results_there_.Place(results, 0);
    AddSum(graph, results, of_rows);
  };
  std::vector<uint32_t> key;
  if (plan_->n_rows <= kMostKeptRows) key = {plan_->n_rows, SumWidth(), n_launched_};
  TRY(LaunchGraph* const graph, combine_.Get(key, build));
  Border border;
  AddSumInputs(*graph, of_rows, border);
  TRY_STATUS(link_.Cross(border));
  return link_.Launch(graph->room.graph());
}

}  // namespace moestro
