// SPDX-License-Identifier: MIT
#include "hosted/expert_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "core/extent.h"

namespace moestro {
namespace {

constexpr uint64_t kPage = 4096;

std::byte* PageDown(std::byte* address) {
  return address - reinterpret_cast<uintptr_t>(address) % kPage;
}
std::byte* PageUp(std::byte* address) { return PageDown(address + (kPage - 1)); }

}  // namespace

template <class Visit>
void ExpertPages::ForEachBorder(const Slice& slice, Visit visit) {
  if (slice.length == 0) return;
  std::byte* const end = slice.begin + slice.length;
  std::byte* const first = PageDown(slice.begin);
  std::byte* const last = PageDown(end);
  if (first != slice.begin || last == first) visit(first);
  if (last != end && last != first) visit(last);
}

ExpertPages::ExpertPages(std::span<const ExpertGroup> groups, std::span<const MappedTensor> dense,
                         const ExpertCatalog& catalog, uint64_t block, bool poisons)
    : catalog_(catalog), block_(block), poisons_(poisons) {
  for (const ExpertGroup& group : groups) {
    std::vector<std::byte*>& data = data_.emplace_back();
    for (const MappedTensor& matrix : group.matrices) data.push_back(matrix.data);
    is_there_.emplace_back(group.n_expert, uint8_t{0});
  }
  for (const MappedTensor& tensor : dense) {
    ForEachBorder({.begin = tensor.data, .length = tensor.info->extent.length},
                  [this](Page page) { ++owners_[page]; });
  }
  for (uint16_t g = 0; poisons_ && g < data_.size(); ++g) {
    for (uint16_t e = 0; e < is_there_[g].size(); ++e) Poison({.layer = {g}, .expert = {e}});
  }
}

Status ExpertPages::CheckBlock(uint64_t block) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (block == kPage && page == kPage) return {};
  return Fail(Errc::kUnsupported,
              "the hosted engine needs pages and blocks of {} bytes; this system has pages of {}, "
              "and the model's disk blocks of {}",
              kPage, page, block);
}

ExpertPages::Slice ExpertPages::SliceOf(ExpertKey key, size_t matrix) const {
  const std::vector<std::byte*>& data = data_[key.layer.value];
  if (matrix >= data.size()) return {};
  const uint64_t length = catalog_.copy(key).slices[matrix].length;
  return {.begin = data[matrix] + key.expert.value * length, .length = length};
}

std::byte* ExpertPages::Window(ExpertKey key, Matrix m) {
  const auto matrix = static_cast<size_t>(m);
  const moestro::Window window = CoveringWindow(catalog_.copy(key).slices[matrix], block_);
  return SliceOf(key, matrix).begin - window.residue;
}

void ExpertPages::Comes(ExpertKey key) {
  uint8_t& is_there = is_there_[key.layer.value][key.expert.value];
  if (is_there != 0) return;
  is_there = 1;
  for (size_t m = 0; m < kMatrices; ++m) {
    ForEachBorder(SliceOf(key, m), [this](Page page) { ++owners_[page]; });
  }
}

void ExpertPages::Leaves(ExpertKey key) {
  uint8_t& is_there = is_there_[key.layer.value][key.expert.value];
  if (is_there == 0) return;
  is_there = 0;
  for (size_t m = 0; m < kMatrices; ++m) {
    const Slice slice = SliceOf(key, m);
    if (slice.length == 0) continue;
    std::byte* const inner = PageUp(slice.begin);
    std::byte* const inner_end = PageDown(slice.begin + slice.length);
    if (inner_end > inner) {
      madvise(inner, static_cast<size_t>(inner_end - inner), MADV_DONTNEED);
    }
    ForEachBorder(slice, [this](Page page) {
      const auto owners = owners_.find(page);
      if (--owners->second > 0) return;
      owners_.erase(owners);
      madvise(page, kPage, MADV_DONTNEED);
    });
  }
  if (poisons_) Poison(key);
}

void ExpertPages::Poison(ExpertKey key) const {
  for (size_t m = 0; m < kMatrices; ++m) {
    const Slice slice = SliceOf(key, m);
    if (slice.length > 0) std::memset(slice.begin, 0xFF, slice.length);
  }
}

}  // namespace moestro
