// SPDX-License-Identifier: MIT
#include "native/plan/numa_plan.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/number.h"
#include "base/result.h"
#include "base/text.h"
#include "core/machine.h"

namespace moestro {
namespace {

// nullptr: no copy is in the pool.
const ExpertCopy* AnyCopyIn(const ExpertCatalog& catalog, uint32_t pool) {
  for (const ExpertCatalog::Layer& layer : catalog.layers) {
    for (const std::vector<ExpertCopy>& copies : layer.experts) {
      const auto found = std::ranges::find(copies, pool, &ExpertCopy::pool);
      if (found != copies.end()) return &*found;
    }
  }
  return nullptr;
}

void Add(NodeBytes bytes, std::vector<NodeBytes>& rows) {
  if (bytes.begin == bytes.end) return;
  if (!rows.empty() && rows.back().node == bytes.node && rows.back().end == bytes.begin) {
    rows.back().end = bytes.end;
  } else {
    rows.push_back(bytes);
  }
}

// Keeps how far rows reach: the furthest end with its node, and the furthest end of all other
// nodes.
class LastEnds {
 public:
  void Add(uint64_t end, uint32_t node) {
    if (node == node_) {
      last_ = std::max(last_, end);
    } else if (end > last_) {
      of_others_ = std::exchange(last_, end);
      node_ = node;
    } else {
      of_others_ = std::max(of_others_, end);
    }
  }
  uint64_t OfOthers(uint32_t node) const { return node == node_ ? of_others_ : last_; }

 private:
  uint64_t last_ = 0;
  uint32_t node_ = NumaPlan::kNoNode;
  uint64_t of_others_ = 0;  // furthest end of nodes but node_
};

}  // namespace

NumaPlan PlanNuma(const NumaTopology& machine, uint32_t threads) {
  NumaPlan plan;
  uint32_t cpus = 0;
  uint32_t cores = 0;
  for (const NumaNode& node : machine.nodes) {
    if (!node.cpus.empty() && node.has_memory) plan.nodes.push_back(node.id);
    cpus += static_cast<uint32_t>(node.cpus.size());
    cores += node.cores;
  }
  if (plan.nodes.size() < 2) return {};
  if (!machine.is_whole || (threads != cores && threads != cpus)) return plan;
  for (const NumaNode& node : machine.nodes) {
    const auto n = threads == cores ? node.cores : static_cast<uint32_t>(node.cpus.size());
    plan.threads.insert(plan.threads.end(), n,
                        {.node = node.has_memory ? node.id : NumaPlan::kNoNode, .cpus = node.cpus});
  }
  return plan;
}

std::string ToText(const NumaPlan& plan) {
  if (!plan.is_on()) return "";
  std::string text = Format("{} NUMA nodes: ", plan.nodes.size());
  if (!plan.has_rows()) return text + "memory interleaved";
  for (const uint32_t node : plan.nodes) {
    text += Format("{}{}", node == plan.nodes.front() ? "" : " + ",
                   std::ranges::count(plan.threads, node, &NumaPlan::Thread::node));
  }
  return text + " threads, each beside its rows";
}

void AddRows(const NumaPlan& plan, std::span<const RowExtent> matrices,
             std::vector<NodeBytes>& rows) {
  CHECK(plan.has_rows());
  uint64_t tiles = 0;
  for (const RowExtent& m : matrices) tiles += TilesOf(m.rows);
  const size_t threads = plan.threads.size();
  uint64_t before = 0;  // tiles of earlier matrices
  for (const RowExtent& m : matrices) {
    const uint64_t its = TilesOf(m.rows);
    // The address of the rows that follow `tile`, which counts the tiles of all matrices.
    const auto at = [&](uint64_t tile) {
      const uint64_t row = (std::clamp(tile, before, before + its) - before) * kTileRows;
      return m.begin + std::min<uint64_t>(row, m.rows) * m.row_bytes;
    };
    for (size_t t = 0; t < threads; ++t) {
      Add({.begin = at(tiles * t / threads),
           .end = at(tiles * (t + 1) / threads),
           .node = plan.threads[t].node},
          rows);
    }
    before += its;
  }
}

std::vector<NodeBytes> PagesOfNodes(std::vector<NodeBytes> rows, uint64_t slack, uint64_t page) {
  std::ranges::sort(rows, {}, &NodeBytes::begin);
  for (NodeBytes& r : rows) {
    r = {.begin = AlignDown(r.begin, page), .end = AlignUp(r.end + slack, page), .node = r.node};
  }
  std::vector<uint64_t> next_other(rows.size(), UINT64_MAX);  // begin of another node's next rows
  for (size_t i = rows.size(); i-- > 1;) {
    const bool is_same = rows[i - 1].node == rows[i].node;
    next_other[i - 1] = is_same ? next_other[i] : rows[i].begin;
  }
  std::vector<NodeBytes> pages;
  LastEnds before;
  for (size_t i = 0; i < rows.size(); ++i) {
    NodeBytes its = rows[i];
    before.Add(its.end, its.node);
    its.begin = std::max(its.begin, before.OfOthers(its.node));
    its.end = std::min(its.end, next_other[i]);
    if (!pages.empty()) its.begin = std::max(its.begin, pages.back().end);
    if (its.begin < its.end && its.node != NumaPlan::kNoNode) Add(its, pages);
  }
  return pages;
}

std::vector<RowExtent> MatricesOfSlot(const ExpertCatalog& catalog, uint32_t pool,
                                      std::span<const uint64_t, kMatrices> offset) {
  // Copies of a pool have the same bytes, so a share of the rows is the same share of the bytes in
  // all copies.
  const ExpertCopy* copy = AnyCopyIn(catalog, pool);
  if (copy == nullptr) return {};
  const CopyForm& form = catalog.forms[copy->form];
  std::vector<RowExtent> matrices;
  for (size_t i = 0; i < kMatrices; ++i) {
    const auto m = static_cast<Matrix>(i);
    const uint64_t length = copy->matrix(m).length;
    const uint32_t rows = m == Matrix::kDown ? form.n_embd : form.n_ff;
    if (length == 0 || rows == 0) continue;
    matrices.push_back({.begin = offset[copy->slice_of(m)] + copy->offset_in_slice(m),
                        .row_bytes = length / rows,
                        .rows = rows});
  }
  return matrices;
}

}  // namespace moestro
