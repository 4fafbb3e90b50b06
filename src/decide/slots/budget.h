// SPDX-License-Identifier: MIT
// Splits a memory budget: everything that must be resident first, expert slots get the rest. Names
// the smallest budget that works, for every command and engine. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace moestro {

// Layers whose experts take the same bytes share one pool of slots.
struct SlotClass {
  uint64_t slot_bytes = 0;  // one expert: three matrices with their read windows
  uint64_t experts = 0;     // experts of all layers of this class
  uint64_t minimum = 0;     // slots below which a step cannot run: K of each token in it
  bool is_low = false;      // of low copies
};

struct BudgetRequest {
  uint64_t budget = 0;       // bytes for the whole process
  uint64_t fixed_cache = 0;  // bytes for slots as the user fixed them; 0: whatever is left
  uint64_t dense = 0;
  uint64_t kv = 0;
  uint64_t work = 0;
  uint64_t staging = 0;  // memory while weights are read, which then goes to work and slots
  uint64_t process = 0;
  // Memory of any command's process. The smallest budget has room for it, so that all commands name
  // the same one and the process has room beyond its size at the start.
  uint64_t usual_process = 0;
  double low_share = 0.0;             // of the bytes for slots, for low copies
  uint64_t bytes_per_table_byte = 0;  // page tables: one byte for so many of the budget; 0: none
  std::vector<SlotClass> classes = {};
};

struct BudgetSplit {
  std::vector<uint64_t> slots;  // per class
  uint64_t slot_bytes = 0;      // of all slots
  uint64_t room = 0;  // bytes given to the slots; as fixed_cache they give the same slots again
  uint64_t table_bytes = 0;  // page tables
  uint64_t smallest = 0;     // SmallestBudget()
};

// Page tables take 8 bytes of 4 KiB at worst.
inline constexpr uint64_t kBytesPerTableByte = 512;

// The smallest budget that works, in whole MiB: it holds the memory that is resident while weights
// are read, and in a step.
uint64_t SmallestBudget(const BudgetRequest& request);

// Every class gets the same share of its experts, at least its minimum and at most all of them: the
// classes of low copies out of their share of the bytes, the others out of the rest.
// kInvalidRequest when the budget does not hold the minimum: the message names the smallest budget
// that works and its parts.
Result<BudgetSplit> SplitBudget(const BudgetRequest& request);

}  // namespace moestro
