// SPDX-License-Identifier: MIT
// The pages of experts at the addresses where libllama looks for them. Matrices of experts lie one
// after the other, so an expert shares its first and last page with its neighbours: such a page is
// given back with the last of those that are there.
//
// Thread rule: the engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/ids.h"
#include "hosted/learned_graph.h"
#include "residency/expert_home.h"

namespace moestro {

class ExpertPages final : public ExpertHome {
 public:
  // `dense`: what stays where it is. poisons: for tests, bytes of experts that are not there are
  // 0xFF. Everything is laid over with anonymous memory. The catalog must outlive this.
  ExpertPages(std::span<const ExpertGroup> groups, std::span<const MappedTensor> dense,
              const ExpertCatalog& catalog, uint64_t block, bool poisons);

  // kUnsupported: reads of whole blocks would not be reads of whole pages, or the system's pages
  // are not those that are given back.
  static Status CheckBlock(uint64_t block);

  std::byte* Window(ExpertKey key, Matrix m) override;
  void Comes(ExpertKey key) override;
  void Leaves(ExpertKey key) override;

 private:
  using Page = std::byte*;
  struct Slice {
    std::byte* begin = nullptr;
    uint64_t length = 0;
  };
  Slice SliceOf(ExpertKey key, size_t matrix) const;
  void Poison(ExpertKey key) const;
  // visit(page) for the pages that only begin or end within the slice.
  template <class Visit>
  static void ForEachBorder(const Slice& slice, Visit visit);

  std::vector<std::vector<std::byte*>> data_;  // [group][matrix]
  const ExpertCatalog& catalog_;
  uint64_t block_;
  bool poisons_;
  std::vector<std::vector<uint8_t>> is_there_;  // [group][expert]
  std::unordered_map<Page, uint32_t> owners_;   // of a border page: experts and tensors there
};

}  // namespace moestro
