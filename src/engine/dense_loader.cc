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

// Tensors that may be stored in another layout: multiplied in every role they have. A tied output
// is looked up as well.
std::unordered_set<const TensorInfo*> OnlyMultiplied(const ModelWeights& weights) {
  std::unordered_set<const TensorInfo*> multiplied;
  std::unordered_set<const TensorInfo*> otherwise{nullptr};
  ForEachRole(
      [&](const TensorRole& role, const TensorInfo* tensor) {
        (role.use == TensorUse::kOnlyMultiplied ? multiplied : otherwise).insert(tensor);
      },
      weights);
  std::erase_if(multiplied, [&](const TensorInfo* tensor) { return otherwise.contains(tensor); });
  return multiplied;
}

Status LoadTensor(DensePlan& plan, size_t i, ReadQueue& queue, const HostMemory& staging,
                  uint64_t block) {
  const Extent& whole = plan.tensors[i]->extent;
  const uint64_t piece = plan.set.is_repacked(i) ? whole.length : kPiece;
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
    plan.set.Store(i, at,
                   staging.bytes().subspan(CoveringWindow(part, block).residue, part.length));
  }
  return {};
}

}  // namespace

DensePlan PlanDense(const CpuDevice& device, const ModelWeights& weights, bool allow_repack) {
  const std::unordered_set<const TensorInfo*> multiplied = OnlyMultiplied(weights);
  std::vector<const TensorInfo*> tensors = weights.dense_tensors();
  std::vector<WeightRequest> requests;
  uint64_t largest = 0;
  for (const TensorInfo* t : tensors) {
    requests.push_back(
        {.name = t->name, .type = t->type, .ne = t->ne, .only_multiplied = multiplied.contains(t)});
    largest = std::max(largest, std::min(t->extent.length, kPiece));
  }
  DensePlan plan{.set = WeightSet::Plan(device, std::move(requests), allow_repack),
                 .tensors = std::move(tensors)};
  plan.staging_bytes = std::max(largest, plan.set.largest_repacked()) + 64 * kKiB;
  return plan;
}

Status LoadDense(DensePlan& plan, ReadQueue& queue, uint64_t block,
                 const std::function<void(uint64_t done, uint64_t total)>& progress) {
  TRY(const HostMemory staging, HostMemory::Allocate(plan.staging_bytes + 2 * block));
  uint64_t total = 0;
  for (const TensorInfo* t : plan.tensors) total += t->extent.length;
  uint64_t done = 0;
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    TRY_STATUS(LoadTensor(plan, i, queue, staging, block));
    done += plan.tensors[i]->extent.length;
    progress(done, total);
  }
  return {};
}

ModelTensors TensorsByRole(const DensePlan& plan, const ModelWeights& weights) {
  std::unordered_map<const TensorInfo*, ggml_tensor*> loaded = {{nullptr, nullptr}};
  for (size_t i = 0; i < plan.tensors.size(); ++i) loaded[plan.tensors[i]] = plan.set.tensor(i);
  const auto look_up = [&](const TensorRole&, const TensorInfo* from, ggml_tensor*& to) {
    to = loaded.at(from);
  };
  ModelTensors tensors;
  ForEachModelRole(look_up, weights, tensors);
  for (const LayerWeights& layer : weights.layers) {
    ForEachLayerRole(look_up, layer, tensors.layers.emplace_back());
  }
  return tensors;
}

}  // namespace moestro
