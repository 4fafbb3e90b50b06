// SPDX-License-Identifier: MIT
#include "engine/dense_loader.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/bytes.h"
#include "core/extent.h"
#include "device/host_memory.h"

namespace moestro {
namespace {

// Weights that keep their layout are read in pieces of this size.
constexpr uint64_t kPiece = 16 * kMiB;

using TensorSet = std::unordered_set<const TensorInfo*>;

// Tensors of a role that is used so.
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
// is looked up as well.
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

// Bytes that reading any of the tensors takes.
uint64_t StagingFor(const DensePlan& plan) {
  uint64_t largest = 0;
  for (const DensePlan::Part* part : {&plan.host, &plan.device}) {
    largest = std::max(largest, part->set.largest_repacked());
    for (const TensorInfo* t : part->tensors) {
      largest = std::max(largest, std::min(t->extent.length, kPiece));
    }
  }
  return largest + 64 * kKiB;
}

Status LoadTensor(DensePlan::Part& dense, size_t i, ReadQueue& queue, const HostMemory& staging,
                  uint64_t block) {
  const Extent& whole = dense.tensors[i]->extent;
  const uint64_t piece = dense.set.is_repacked(i) ? whole.length : kPiece;
  for (uint64_t at = 0; at < whole.length; at += piece) {
    const Extent part{.file = whole.file,
                      .offset = whole.offset + at,
                      .length = std::min(piece, whole.length - at)};
    queue.Enqueue({.from = part,
                   .landing = staging.bytes().first(WindowCapacity(part.length, block)),
                   .tag = i,
                   .urgency = Urgency::kDemand});
    std::vector<ExtentDone> done;
    while (done.empty()) queue.Wait(done);
    if (done.front().error) return std::unexpected(*std::move(done.front().error));
    dense.set.Store(i, at,
                    staging.bytes().subspan(CoveringWindow(part, block).residue, part.length));
  }
  return {};
}

}  // namespace

Status DensePlan::Allocate() {
  TRY_STATUS(host.set.Allocate());
  return device.set.Allocate();
}

DensePlan PlanDense(const CpuDevice& device, const ModelWeights& weights, bool allow_repack) {
  DensePlan plan;
  plan.host.tensors = weights.dense_tensors();
  plan.host.set = WeightSet::Plan(device, RequestsFor(plan.host.tensors, OnlyMultiplied(weights)),
                                  allow_repack);
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
  plan.host.set = WeightSet::Plan(device, RequestsFor(plan.host.tensors, {}), false);
  plan.device.set = WeightSet::PlanOn(backend, RequestsFor(plan.device.tensors, {}));
  plan.staging_bytes = StagingFor(plan);
  return plan;
}

Status LoadDense(DensePlan& plan, ReadQueue& queue, uint64_t block,
                 const std::function<void(uint64_t done, uint64_t total)>& progress) {
  TRY(const HostMemory staging, HostMemory::Allocate(plan.staging_bytes + 2 * block));
  uint64_t total = 0;
  for (const DensePlan::Part* part : {&plan.host, &plan.device}) {
    for (const TensorInfo* t : part->tensors) total += t->extent.length;
  }
  uint64_t done = 0;
  for (DensePlan::Part* part : {&plan.host, &plan.device}) {
    for (size_t i = 0; i < part->tensors.size(); ++i) {
      TRY_STATUS(LoadTensor(*part, i, queue, staging, block));
      done += part->tensors[i]->extent.length;
      progress(done, total);
    }
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
