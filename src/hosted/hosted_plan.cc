// SPDX-License-Identifier: MIT
#include "hosted/hosted_plan.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace moestro {
namespace {

// Default number of a prompt's rows that are computed together.
constexpr uint32_t kUsualChunk = 512;
// Logits of so many bytes are computed at a time.
constexpr uint64_t kLogitsBytes = uint64_t{4} << 20;
// libllama's limit.
constexpr uint32_t kMostPlaces = 256;

}  // namespace

ContextSizes SizesOf(uint32_t n_ctx, uint32_t chunk, uint32_t sequences, uint64_t n_vocab) {
  ContextSizes sizes;
  sizes.chunk = std::max(std::min(chunk > 0 ? chunk : kUsualChunk, n_ctx), sequences);
  sizes.places = std::min(4 * sequences + 2, kMostPlaces);
  sizes.places_of_states = std::min(2 * sequences + 4, kMostPlaces);
  const uint64_t of_logits = kLogitsBytes / (std::max<uint64_t>(n_vocab, 1) * sizeof(float));
  // libllama's context needs room for a row of each of its sequences, and ends the process
  // otherwise.
  sizes.outputs =
      static_cast<uint32_t>(std::max({std::min<uint64_t>(of_logits, sizes.chunk),
                                      uint64_t{sizes.places}, uint64_t{sizes.places_of_states}}));
  return sizes;
}

ExpertCatalog CatalogOf(std::span<const ExpertGroup> groups) {
  ExpertCatalog catalog;
  for (uint16_t g = 0; g < groups.size(); ++g) {
    const ExpertGroup& group = groups[g];
    CopyForm form{.n_embd = static_cast<uint32_t>(group.matrices.front().info->ne[0]),
                  .n_ff = static_cast<uint32_t>(group.matrices.front().info->ne[1])};
    for (uint16_t e = 0; e < group.n_expert; ++e) {
      std::array<Extent, kMatrices> slices{};
      for (size_t m = 0; m < group.matrices.size(); ++m) {
        const TensorInfo& info = *group.matrices[m].info;
        const uint64_t length = info.extent.length / group.n_expert;
        slices[m] = {
            .file = info.extent.file, .offset = info.extent.offset + e * length, .length = length};
        form.types[m] = info.type;
      }
      catalog.Add(ExpertLayerId{g}, ExpertId{e}, form, slices);
    }
  }
  return catalog;
}

MoeShape ShapeOf(std::span<const ExpertGroup> groups) {
  MoeShape shape{.n_layer = static_cast<uint32_t>(groups.size())};
  for (const ExpertGroup& group : groups) {
    shape.n_expert = std::max(shape.n_expert, group.n_expert);
    shape.n_used = std::max(shape.n_used, group.n_used);
  }
  return shape;
}

std::vector<uint64_t> SlotsForRows(const LearnedGraph& graph, const ExpertCatalog& catalog,
                                   uint32_t rows) {
  std::vector<uint64_t> slots(catalog.pools.size(), 0);
  for (size_t g = 0; g < graph.groups.size(); ++g) {
    const ExpertGroup& group = graph.groups[g];
    const uint32_t pool = catalog.layers[g].pools.front();
    const uint64_t chosen = std::min<uint64_t>(group.n_expert, uint64_t{rows} * group.n_used);
    // Groups that are in use together may share a pool.
    slots[pool] =
        std::max(slots[pool], std::min(chosen * graph.most_open, catalog.pools[pool].experts));
  }
  return slots;
}

size_t EvenRows(std::span<const BatchRow> rows) {
  const auto run_from = [&](size_t first) {
    size_t n = 1;
    while (first + n < rows.size() && rows[first + n].sequence == rows[first].sequence) ++n;
    return n;
  };
  const size_t length = run_from(0);
  size_t n = length;
  while (n < rows.size() && run_from(n) == length) {
    const bool is_known =
        std::ranges::contains(rows.first(n), rows[n].sequence, &BatchRow::sequence);
    if (is_known) break;
    n += length;
  }
  return n;
}

}  // namespace moestro
