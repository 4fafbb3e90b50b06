// SPDX-License-Identifier: MIT
#include "decide/slots/budget.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

#include "base/number.h"
#include "base/text.h"

namespace moestro {
namespace {

// Slots per class when every class gets the fraction `share` of its experts.
std::vector<uint64_t> Share(std::span<const SlotClass> classes, double share) {
  std::vector<uint64_t> slots;
  for (const SlotClass& c : classes) {
    const auto wanted = static_cast<uint64_t>(static_cast<double>(c.experts) * share);
    slots.push_back(std::clamp(wanted, std::min(c.minimum, c.experts), c.experts));
  }
  return slots;
}

uint64_t BytesOf(std::span<const SlotClass> classes, std::span<const uint64_t> slots) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < classes.size(); ++i) bytes += classes[i].slot_bytes * slots[i];
  return bytes;
}

// The largest equal share that fits, found by bisection: Share() is monotonic.
std::vector<uint64_t> LargestThatFits(std::span<const SlotClass> classes, uint64_t bytes) {
  if (BytesOf(classes, Share(classes, 1.0)) <= bytes) return Share(classes, 1.0);
  double low = 0.0;
  double high = 1.0;
  for (int step = 0; step < 40; ++step) {
    const double middle = (low + high) / 2;
    (BytesOf(classes, Share(classes, middle)) <= bytes ? low : high) = middle;
  }
  std::vector<uint64_t> slots = Share(classes, low);
  // The bytes that rounding left over go to whole slots of the first classes that can take one.
  uint64_t rest = bytes - BytesOf(classes, slots);
  for (size_t i = 0; i < classes.size(); ++i) {
    const uint64_t more = std::min(rest / classes[i].slot_bytes, classes[i].experts - slots[i]);
    slots[i] += more;
    rest -= more * classes[i].slot_bytes;
  }
  return slots;
}

// Gives the low classes their slots first, out of their share of `bytes`; the others get the rest.
std::vector<uint64_t> SplitSlots(std::span<const SlotClass> classes, uint64_t bytes,
                                 double low_share) {
  std::vector<SlotClass> low;
  std::vector<SlotClass> own;
  for (const SlotClass& c : classes) (c.is_low ? low : own).push_back(c);
  if (low.empty()) return LargestThatFits(classes, bytes);
  const uint64_t least_low = BytesOf(low, Share(low, 0.0));
  const uint64_t least_own = BytesOf(own, Share(own, 0.0));
  const auto wanted = static_cast<uint64_t>(static_cast<double>(bytes) * low_share);
  const std::vector<uint64_t> low_slots =
      LargestThatFits(low, std::clamp(wanted, least_low, bytes - least_own));
  const std::vector<uint64_t> own_slots = LargestThatFits(own, bytes - BytesOf(low, low_slots));
  std::vector<uint64_t> slots;
  size_t next_low = 0;
  size_t next_own = 0;
  for (const SlotClass& c : classes) {
    slots.push_back(c.is_low ? low_slots[next_low++] : own_slots[next_own++]);
  }
  return slots;
}

uint64_t TablesOf(uint64_t budget, uint64_t per) { return per > 0 ? budget / per : 0; }

// The smallest budget that holds `bytes` and its own page tables.
uint64_t WithTables(uint64_t bytes, uint64_t per) {
  uint64_t budget = per > 0 ? bytes + bytes / (per - 1) : bytes;
  while (budget - TablesOf(budget, per) < bytes) ++budget;
  return budget;
}

uint64_t SlotBytes(const BudgetRequest& request) {
  const uint64_t least = BytesOf(request.classes, Share(request.classes, 0.0));
  return request.fixed_cache > 0 ? std::max(request.fixed_cache, least) : least;
}

Error TooSmall(const BudgetRequest& request, uint64_t smallest) {
  const uint64_t process = std::max(request.process, request.usual_process);
  const uint64_t tables = TablesOf(smallest, request.bytes_per_table_byte);
  std::string loading;
  if (request.staging > request.work + SlotBytes(request)) {
    loading = Format(", and while loading {}", FormatBytes(request.staging));
  }
  return {.code = Errc::kInvalidRequest,
          .message = Format(
              "a budget of {} is too small; the smallest that works is --ram {}M: dense weights "
              "{}, KV cache {}, work buffers {}, process {}, expert slots {}{}",
              FormatBytes(request.budget), smallest / kMiB, FormatBytes(request.dense),
              FormatBytes(request.kv), FormatBytes(request.work), FormatBytes(process + tables),
              FormatBytes(SlotBytes(request)), loading)};
}

}  // namespace

uint64_t SmallestBudget(const BudgetRequest& request) {
  const uint64_t process = std::max(request.process, request.usual_process);
  const uint64_t in_turn = std::max(request.work + SlotBytes(request), request.staging);
  const uint64_t bytes = request.dense + request.kv + process + in_turn;
  return AlignUp(WithTables(bytes, request.bytes_per_table_byte), kMiB);
}

Result<BudgetSplit> SplitBudget(const BudgetRequest& request) {
  const uint64_t least = BytesOf(request.classes, Share(request.classes, 0.0));
  if (request.fixed_cache > 0 && request.fixed_cache < least) {
    return Fail(Errc::kInvalidRequest,
                "an expert cache of {} is too small; this model needs at least {} (--cache {}K)",
                FormatBytes(request.fixed_cache), FormatBytes(least), least / kKiB + 1);
  }
  BudgetSplit split;
  split.smallest = SmallestBudget(request);
  if (request.budget < split.smallest) return std::unexpected(TooSmall(request, split.smallest));
  split.table_bytes = TablesOf(request.budget, request.bytes_per_table_byte);
  const uint64_t fixed =
      request.dense + request.kv + request.work + request.process + split.table_bytes;
  split.room = request.fixed_cache > 0 ? request.fixed_cache : request.budget - fixed;
  split.slots = SplitSlots(request.classes, split.room, request.low_share);
  split.slot_bytes = BytesOf(request.classes, split.slots);
  return split;
}

}  // namespace moestro
