// SPDX-License-Identifier: MIT
// The pages of experts at the addresses that libllama reads. Matrices of experts lie one after the
// other, so an expert shares its first and last page with its neighbours. A shared page is given
// back with the last of its experts.
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
  // `dense`: tensors that stay in memory. poisons: for tests, bytes of absent experts are 0xFF.
  // REQUIRES: all of these tensors lie in anonymous memory. The catalog must outlive this.
  ExpertPages(std::span<const ExpertGroup> groups, std::span<const MappedTensor> dense,
              const ExpertCatalog& catalog, uint64_t block, bool poisons);

  // kUnsupported: whole blocks are not whole pages, or the system's page size is not the one that
  // is given back.
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
  // Calls visit(page) for each page that is only partly within the slice.
  template <class Visit>
  static void ForEachBorder(const Slice& slice, Visit visit);

  std::vector<std::vector<std::byte*>> data_;  // [group][matrix]
  const ExpertCatalog& catalog_;
  uint64_t block_;
  bool poisons_;
  std::vector<std::vector<uint8_t>> is_there_;  // [group][expert]
  // [border page] the number of experts and tensors on the page
  std::unordered_map<Page, uint32_t> owners_;
};

}  // namespace moestro
