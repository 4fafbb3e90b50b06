// SPDX-License-Identifier: MIT
#include "native/dense_loader.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "compute/host_memory.h"
#include "core/extent.h"
#include "model/weights_id.h"
#include "native/weight_load.h"

namespace moestro {
namespace {

using TensorSet = std::unordered_set<const TensorInfo*>;

// Tensors of the roles whose use `is_so` accepts.
TensorSet UsedAs(const ModelWeights& weights, auto&& is_so) {
  TensorSet found;
  ForEachRole(
      [&](const TensorRole& role, const TensorInfo* tensor) {
        if (tensor != nullptr && is_so(role.use)) found.insert(tensor);
      },
      weights);
  return found;
}

// Tensors that may be stored in another layout: multiplied in every role they have. A tied output
// keeps its layout, since embeddings look up its rows as well.
TensorSet OnlyMultiplied(const ModelWeights& weights) {
  TensorSet multiplied =
      UsedAs(weights, [](TensorUse use) { return use == TensorUse::kOnlyMultiplied; });
  const TensorSet otherwise =
      UsedAs(weights, [](TensorUse use) { return use != TensorUse::kOnlyMultiplied; });
  std::erase_if(multiplied, [&](const TensorInfo* tensor) { return otherwise.contains(tensor); });
  return multiplied;
}

std::vector<WeightRequest> RequestsFor(std::span<const TensorInfo* const> tensors,
                                       const TensorSet& multiplied) {
  std::vector<WeightRequest> requests;
  for (const TensorInfo* t : tensors) {
    requests.push_back(
        {.name = t->name, .type = t->type, .ne = t->ne, .only_multiplied = multiplied.contains(t)});
  }
  return requests;
}

std::vector<WeightPiece> PiecesOf(const DensePlan::Part& part) {
  std::vector<Extent> from;
  for (const TensorInfo* t : part.tensors) from.push_back(t->extent);
  return CutWeights(part.set, from);
}

// Bytes for the larger part, since parts are loaded one after the other.
uint64_t StagingFor(const DensePlan& plan) {
  return std::max(StagingFor(PiecesOf(plan.host)), StagingFor(PiecesOf(plan.device)));
}

}  // namespace

Status DensePlan::Allocate() {
  TRY_STATUS(host.set.Allocate());
  return device.set.Allocate();
}

DensePlan PlanDense(const CpuDevice& device, const ModelWeights& weights,
                    const WeightLayouts& layouts) {
  DensePlan plan;
  plan.host.tensors = weights.dense_tensors();
  plan.host.set =
      WeightSet::Plan(device, RequestsFor(plan.host.tensors, OnlyMultiplied(weights)), layouts);
  plan.staging_bytes = StagingFor(plan);
  return plan;
}

DensePlan PlanDenseOn(ggml_backend_t backend, const CpuDevice& device,
                      const ModelWeights& weights) {
  const TensorSet by_host =
      UsedAs(weights, [](TensorUse use) { return use == TensorUse::kByHost; });
  const TensorSet by_graphs =
      UsedAs(weights, [](TensorUse use) { return use != TensorUse::kByHost; });
  DensePlan plan;
  for (const TensorInfo* t : weights.dense_tensors()) {
    if (by_host.contains(t)) plan.host.tensors.push_back(t);
    if (by_graphs.contains(t)) plan.device.tensors.push_back(t);
  }
  plan.host.set = WeightSet::Plan(device, RequestsFor(plan.host.tensors, {}),
                                  {.allow_repack = false, .rows_alike = false});
  plan.device.set = WeightSet::PlanOn(backend, RequestsFor(plan.device.tensors, {}));
  plan.staging_bytes = StagingFor(plan);
  return plan;
}

Status LoadDense(DensePlan& plan, ReadQueue& queue, Team& team,
                 const std::function<void(uint64_t done, uint64_t total)>& progress,
                 std::atomic<uint64_t>* sum) {
  TRY(const HostMemory staging, HostMemory::Allocate(plan.staging_bytes + 2 * queue.block()));
  uint64_t total = 0;
  for (const DensePlan::Part* part : {&plan.host, &plan.device}) {
    for (const TensorInfo* t : part->tensors) total += t->extent.length;
  }
  uint64_t before = 0;  // bytes stored of earlier parts
  for (DensePlan::Part* part : {&plan.host, &plan.device}) {
    const std::vector<WeightPiece> pieces = PiecesOf(*part);
    uint64_t done = 0;
    // A tensor that is in memory and on the device is added once.
    const auto add = [&, is_host = part == &plan.host](const WeightPiece& piece,
                                                       std::span<const std::byte> bytes) {
      const TensorInfo* tensor = part->tensors[piece.weight];
      if (!is_host && std::ranges::contains(plan.host.tensors, tensor)) return;
      sum->fetch_add(DenseSum(tensor->name, piece.offset, bytes), std::memory_order_relaxed);
    };
    TRY_STATUS(LoadWeights({.set = part->set,
                            .pieces = pieces,
                            .queue = queue,
                            .staging = staging.bytes(),
                            .team = part == &plan.host ? &team : nullptr,
                            .stored =
                                [&](uint64_t bytes) {
                                  done = bytes;
                                  progress(before + done, total);
                                },
                            .landed = sum != nullptr ? add : decltype(WeightLoad::landed)()}));
    before += done;
  }
  return {};
}

ModelTensors TensorsByRole(const DensePlan& plan, const ModelWeights& weights) {
  using Loaded = std::unordered_map<const TensorInfo*, ggml_tensor*>;
  const auto of = [](const DensePlan::Part& part) {
    Loaded loaded;
    for (size_t i = 0; i < part.tensors.size(); ++i) loaded[part.tensors[i]] = part.set.tensor(i);
    return loaded;
  };
  const Loaded host = of(plan.host);
  const Loaded device = of(plan.device);
  const auto look_up = [&](const TensorRole& role, const TensorInfo* from, ggml_tensor*& to) {
    if (from == nullptr) return;
    const bool is_there = role.use != TensorUse::kByHost && device.contains(from);
    to = (is_there ? device : host).at(from);
  };
  ModelTensors tensors;
  ForEachModelRole(look_up, weights, tensors);
  for (const LayerWeights& layer : weights.layers) {
    ForEachLayerRole(look_up, layer, tensors.layers.emplace_back());
  }
  return tensors;
}

}  // namespace moestro
