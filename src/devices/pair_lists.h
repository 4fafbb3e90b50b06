// SPDX-License-Identifier: MIT
// The pairs of a launch in the order in which a device takes them, and the numbers of their slots,
// experts and rows. ggml multiplies by experts of one tensor, so the pairs whose slots are in one
// piece of a pool form a part of their own:
//
//   [part 0: slots | experts][part 1: slots | experts] ... [rows of all pairs]
//
// Each list begins at an alignment that every device can read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "devices/device_pools.h"
#include "devices/transport.h"

namespace moestro {

class PairLists {
 public:
  struct Part {
    size_t piece = 0;  // piece of the pool
    size_t first = 0;  // pairs [first, first + n)
    size_t n = 0;
    size_t slots_at = 0;  // index of the list in numbers()
    size_t experts_at = 0;
  };

  void Assign(const DevicePools& pools, uint32_t form, std::span<const Transport::Pair> pairs);

  // Pairs piece by piece, in a piece as given to Assign().
  std::span<const Transport::Pair> pairs() const { return pairs_; }
  std::span<const Part> parts() const { return parts_; }
  size_t rows_at() const { return rows_at_; }
  std::span<const int32_t> numbers() const { return numbers_; }

 private:
  void Append(const Part& part, const DevicePools& pools, uint32_t form);

  std::vector<Transport::Pair> pairs_;
  std::vector<Part> parts_;
  size_t rows_at_ = 0;
  std::vector<int32_t> numbers_;
};

}  // namespace moestro
