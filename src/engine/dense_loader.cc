// SPDX-License-Identifier: MIT
#include "engine/dense_loader.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/bytes.h"
#include "compute/host_memory.h"
#include "core/extent.h"

namespace moestro {
namespace {

// Weights that keep their layout are read in pieces of this size.
constexpr uint64_t kPiece = 16 * kMiB;

// A matrix that only ever stands on the left of a product may be stored in another layout.
// Embedding rows are looked up, vectors and the router (F32) gain nothing.
std::unordered_set<const TensorInfo*> OnlyMultiplied(const ModelWeights& weights) {
  std::unordered_set<const TensorInfo*> set;
  if (weights.output != weights.token_embd) set.insert(weights.output);
  for (const LayerWeights& l : weights.layers) {
    set.insert({l.attn_q, l.attn_k, l.attn_v, l.attn_qkv, l.attn_out, l.shared_gate, l.shared_up,
                l.shared_down});
  }
  set.erase(nullptr);
  return set;
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
  ModelTensors tensors{.token_embd = loaded.at(weights.token_embd),
                       .output = loaded.at(weights.output),
                       .output_b = loaded.at(weights.output_b),
                       .output_norm = loaded.at(weights.output_norm),
                       .output_norm_b = loaded.at(weights.output_norm_b),
                       .rope_freqs = loaded.at(weights.rope_freqs),
                       .rope_factors_long = loaded.at(weights.rope_factors_long),
                       .rope_factors_short = loaded.at(weights.rope_factors_short),
                       .layers = {}};
  for (const LayerWeights& l : weights.layers) {
    tensors.layers.push_back({.attn_norm = loaded.at(l.attn_norm),
                              .attn_norm_b = loaded.at(l.attn_norm_b),
                              .attn_q = loaded.at(l.attn_q),
                              .attn_k = loaded.at(l.attn_k),
                              .attn_v = loaded.at(l.attn_v),
                              .attn_qkv = loaded.at(l.attn_qkv),
                              .attn_q_b = loaded.at(l.attn_q_b),
                              .attn_k_b = loaded.at(l.attn_k_b),
                              .attn_v_b = loaded.at(l.attn_v_b),
                              .attn_qkv_b = loaded.at(l.attn_qkv_b),
                              .attn_out = loaded.at(l.attn_out),
                              .attn_out_b = loaded.at(l.attn_out_b),
                              .attn_q_norm = loaded.at(l.attn_q_norm),
                              .attn_k_norm = loaded.at(l.attn_k_norm),
                              .ffn_norm = loaded.at(l.ffn_norm),
                              .ffn_norm_b = loaded.at(l.ffn_norm_b),
                              .router = loaded.at(l.router),
                              .shared_router = loaded.at(l.shared_router),
                              .shared_gate = loaded.at(l.shared_gate),
                              .shared_up = loaded.at(l.shared_up),
                              .shared_down = loaded.at(l.shared_down)});
  }
  return tensors;
}

}  // namespace moestro
