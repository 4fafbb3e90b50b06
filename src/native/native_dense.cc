// SPDX-License-Identifier: MIT
// Where the dense part runs, with its weights, keys and values: on the first device if it has
// room and computes as exactly as the CPU, else on the CPU, and that is said.
#include <algorithm>
#include <cstddef>
#include <set>

#include "base/bytes.h"
#include "base/log.h"
#include "forward/dense/attention.h"
#include "forward/dense/attention_probe.h"
#include "forward/dense/dense_probe.h"
#include "forward/dense/masked_attention.h"
#include "forward/experts/device_probe.h"
#include "native/catalog.h"
#include "native/native_impl.h"

namespace moestro {

Status NativeEngine::Impl::PrepareDense() {
  if (!gpus.empty() && !options.device.dense_on_cpu) {
    UsedDevice& first = *gpus.front();
    Status there = BuildDense(&first.device);
    if (there) there = TryDense(first.device);
    if (there) return {};
    LogWarning("{}; the CPU computes the dense part", there.error().message);
    graph.reset();
    look_ahead_routers = {};
    kv = {};
    buffers = {};
    first.plan = DevicePlan{.info = first.device.info()};
  }
  return BuildDense(nullptr);
}

// there: the first device; null: the CPU.
Status NativeEngine::Impl::BuildDense(const ComputeDevice* there) {
  ggml_backend_t backend = there != nullptr ? there->backend() : nullptr;
  dense = backend != nullptr
              ? PlanDenseOn(backend, *device, model.weights)
              : PlanDense(*device, model.weights,
                          {.allow_repack = options.repack, .rows_alike = !options.fast_batches});
  if (there != nullptr) TRY_STATUS(CheckDenseRoom(*there));
  TRY_STATUS(dense.Allocate());
  TRY(buffers, StepBuffers::Allocate(model.spec, step_limits(), backend));
  TRY(kv, KvCache::Allocate(remembers, LayerGraph::CellsFor(n_cells, there != nullptr), backend));
  TRY(states, StateStore::Allocate(remembers, sequences->states().size()));
  if (look_ahead > 0) {
    TRY(look_ahead_routers, LookAheadRouters::Allocate(model.spec, backend));
  }
  tensors = TensorsByRole(dense, model.weights);
  layer_forms = LayerFormsOf(model.spec, tensors);
  TRY(graph, LayerGraph::Create({.cpu = *device,
                                 .spec = model.spec,
                                 .tensors = tensors,
                                 .buffers = buffers,
                                 .kv = kv,
                                 .states = states,
                                 .look_ahead = look_ahead > 0 ? &look_ahead_routers : nullptr,
                                 .device = there,
                                 .stop = &stop,
                                 .make_state_mixer = options.make_state_mixer},
                                n_ctx, chunk, logits_rows));
  if (there == nullptr) return {};
  DevicePlan& plan = gpus.front()->plan;
  plan.dense = dense.device.set.bytes();
  plan.kv = KvCache::BytesFor(remembers, kv.cells(), backend);
  plan.bytes = DenseBytesOn(*there) + graph->work_bytes();
  return {};
}

// Weights, keys and values, and what crosses the border between graphs.
uint64_t NativeEngine::Impl::DenseBytesOn(const ComputeDevice& there) const {
  ggml_backend_t backend = there.backend();
  const uint64_t routers = look_ahead > 0 ? LookAheadRouters::BytesFor(model.spec) : 0;
  const uint32_t cells = LayerGraph::CellsFor(n_cells, true);
  const uint64_t pairs = uint64_t{chunk} * model.spec.router.n_used;
  return dense.device.set.bytes() + KvCache::BytesFor(remembers, cells, backend) + routers +
         StepBuffers::BytesFor(model.spec, step_limits(), backend) +
         DeviceExperts::BytesThere(DeviceShape(there), pairs);
}

// There must be room for the experts of a token beside it.
Status NativeEngine::Impl::CheckDenseRoom(const ComputeDevice& there) const {
  const UsedDevice& its = *gpus.front();
  uint64_t token = 0;
  for (size_t f = 0; f < catalog.forms.size(); ++f) {
    if (!its.computes[f]) continue;
    token = std::max(token, DevicePools::BytesFor(catalog.forms[f], model.spec.router.n_used));
  }
  const uint64_t needed = DenseBytesOn(there) +
                          MaskedAttention::BytesFor(chunk, LayerGraph::CellsFor(n_cells, true)) +
                          DeviceExperts::WorkBytes(DeviceShape(there)) + token;
  if (needed <= its.vram) return {};
  return Fail(Errc::kDevice,
              "the dense part and a token's experts take {}, of which {} may be used on {}",
              FormatBytes(needed), FormatBytes(its.vram), there.info().name);
}

// Each type of matrix, multiplied there and by the CPU; then attention of this model's heads. Of
// many rows the last tile is not whole.
Status NativeEngine::Impl::TryDense(const ComputeDevice& there) const {
  std::set<ggml_type> types;
  for (const TensorInfo* t : dense.device.tensors) {
    if (t->ne[1] > 1) types.insert(t->type);
  }
  for (const ggml_type type : types) {
    for (const uint32_t rows : DeviceProbe::kRowsToTry) {
      TRY(const double difference, DenseDifference(there, *device, type, rows));
      const double most = MostDenseDifference(type);
      if (difference <= most) continue;
      return Fail(Errc::kDevice,
                  "{} multiplies {} with an error of {:.1e} (mean squares; {:.0e} is allowed)",
                  there.info().name, ggml_type_name(type), difference, most);
    }
  }
  const std::vector<LayerSpec>& layers = model.spec.layers;
  for (auto layer = layers.begin(); layer != layers.end(); ++layer) {
    const bool is_tried = std::find_if(layers.begin(), layer, [&](const LayerSpec& before) {
                            return before.mixer == layer->mixer;
                          }) != layer;
    if (!is_tried && layer->attention() != nullptr) {
      TRY_STATUS(TryAttention(there, *layer->attention()));
    }
  }
  return {};
}

Status NativeEngine::Impl::TryAttention(const ComputeDevice& there,
                                        const AttentionSpec& attention) const {
  const AttentionShape shape = AttentionShape::Of(attention, kv.type());
  for (const uint32_t rows : {1U, DeviceProbe::kRowsToTry.back()}) {
    TRY(const double difference, AttentionDifference(there.backend(), shape, rows));
    if (difference <= kMostAttentionDifference) continue;
    return Fail(Errc::kDevice,
                "{} attends with an error of {:.1e} in a prompt of {} (mean squares; {:.0e} is "
                "allowed)",
                there.info().name, difference, rows, kMostAttentionDifference);
  }
  return {};
}

}  // namespace moestro
