// SPDX-License-Identifier: MIT
#include "hosted/slot_products.h"

#include <algorithm>
#include <cstring>

#include "base/result.h"
#include "core/extent.h"

namespace moestro {
namespace {

// A tensor of our own in the place of one of the graph's, with the same buffer, by which ggml takes
// the tensor for the CPU's.
ggml_tensor InPlaceOf(const ggml_tensor& tensor) {
  ggml_tensor ours = tensor;
  ours.op = GGML_OP_NONE;
  ours.view_src = nullptr;
  ours.view_offs = 0;
  std::ranges::fill(ours.src, nullptr);
  return ours;
}

// The residue that every expert's window has, or nullopt.
std::optional<uint64_t> CommonResidue(const ExpertCatalog::Layer& layer, size_t matrix,
                                      uint64_t block) {
  std::optional<uint64_t> common;
  for (const std::vector<ExpertCopy>& copies : layer.experts) {
    const uint64_t residue = CoveringWindow(copies.front().slices[matrix], block).residue;
    if (common && *common != residue) return std::nullopt;
    common = residue;
  }
  return common;
}

}  // namespace

SlotProducts::SlotProducts(const LearnedGraph& graph, const ExpertCatalog& catalog,
                           const Residency& residency)
    : groups_(graph.groups.size()) {
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    const ExpertGroup& learned = graph.groups[g];
    const ExpertCatalog::Layer& layer = catalog.layers[g];
    Group& group = groups_[g];
    group.grid = residency.grid(layer.pools.front());
    group.slot_of.assign(learned.n_expert, -1);
    for (uint32_t m = 0; m < learned.matrices.size(); ++m) {
      group.residue[m] = CommonResidue(layer, m, residency.block());
      group.length[m] = layer.experts.front().front().slices[m].length;
      by_data_[learned.matrices[m].data] = {.group = g, .matrix = m};
      by_ours_[&group.matrices[m]] = {.group = g, .matrix = m};
    }
  }
}

std::optional<SlotProducts::Product> SlotProducts::Find(const ggml_tensor& product) const {
  const ggml_tensor* const matrices = product.src[0];
  // libllama computes a graph again when the next one is equal; then the tensors are ours already.
  if (const auto ours = by_ours_.find(matrices); ours != by_ours_.end()) return ours->second;
  const auto known = by_data_.find(matrices->data);
  if (known == by_data_.end()) return std::nullopt;
  return known->second;
}

// Moves each matrix to the front of its window if windows of the layer begin at different residues:
// one tensor over all slots needs one residue.
void SlotProducts::BringToFront(const Group& group, const Lease& lease) const {
  Lease::Notes notes = lease.notes();
  if (notes.is_at_front) return;
  std::byte* const slot = group.grid.begin + lease.slot().value * group.grid.stride;
  for (size_t m = 0; m < kMatrices; ++m) {
    if (group.residue[m] || group.length[m] == 0) continue;
    std::byte* const lies = lease.matrix(static_cast<Matrix>(m));
    std::memmove(slot + group.grid.offset[m], lies, group.length[m]);
  }
  notes.is_at_front = true;
  lease.SetNotes(notes);
}

void SlotProducts::Choose(uint32_t g, const ggml_tensor& ids, const Routing& routing,
                          const LeaseStream& leases) {
  Group& group = groups_[g];
  const bool is_ragged = !std::ranges::all_of(
      group.residue, [](const std::optional<uint64_t>& r) { return r.has_value(); });
  for (size_t i = 0; i < leases.size(); ++i) {
    const Lease& lease = *leases.lease(i);
    if (is_ragged) BringToFront(group, lease);
    group.slot_of[lease.key().expert.value] = static_cast<int32_t>(lease.slot().value);
  }
  group.slots.clear();
  for (const ExpertId expert : routing.experts) {
    group.slots.push_back(group.slot_of[expert.value]);
    CHECK(group.slots.back() >= 0);
  }
  group.ids = InPlaceOf(ids);
  group.ids.data = group.slots.data();
  group.ids.nb[1] = routing.n_used * sizeof(int32_t);
  group.ids.nb[2] = group.ids.nb[3] = group.slots.size() * sizeof(int32_t);
}

void SlotProducts::Redirect(ggml_tensor& product, Product which) {
  Group& group = groups_[which.group];
  ggml_tensor& matrices = group.matrices[which.matrix];
  if (product.src[0] != &matrices) {
    matrices = InPlaceOf(*product.src[0]);
    matrices.data = group.grid.begin + group.grid.offset[which.matrix] +
                    group.residue[which.matrix].value_or(0);
    matrices.ne[2] = static_cast<int64_t>(group.grid.slots);
    matrices.nb[2] = group.grid.stride;
    matrices.nb[3] = group.grid.stride * group.grid.slots;
    product.src[0] = &matrices;
  }
  product.src[2] = &group.ids;
}

}  // namespace moestro
