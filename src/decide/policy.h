// SPDX-License-Identifier: MIT
// Which expert gives up its slot. Pure: no clock, lock or I/O, and no allocation after Reset(), so
// that the simulator and the engine run the same code. One idea per file under policies/.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/ids.h"

namespace moestro {

// Which slots must not be chosen: leased, or with bytes under way.
class PinView {
 public:
  virtual bool is_pinned(SlotId slot) const = 0;

 protected:
  ~PinView() = default;
};

class Policy {
 public:
  virtual ~Policy() = default;
  // Forgets everything; slots are numbered 0 .. slots-1 and all empty.
  virtual void Reset(size_t slots) = 0;
  // `slot` now belongs to `key` and has just been used. REQUIRES: the slot was empty.
  virtual void Inserted(SlotId slot, ExpertKey key) = 0;
  virtual void Touched(SlotId slot) = 0;
  // `slot` is empty again, by eviction or after a failed read.
  virtual void Erased(SlotId slot) = 0;
  // The slot to give up. REQUIRES: some occupied slot is not pinned.
  virtual SlotId Victim(const PinView& pins) const = 0;
};

// Names for --policy and --help.
std::vector<std::string_view> PolicyNames();
// kUsage for an unknown name; the message lists the known ones.
Result<std::unique_ptr<Policy>> MakePolicy(std::string_view name);

}  // namespace moestro
