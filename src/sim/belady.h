// SPDX-License-Identifier: MIT
// Belady's rule: evict the expert that is needed again last. The policy reads the trace ahead, so
// its hit rate is the limit for other policies. Only the simulator has it. Source: L. A. Belady, "A
// study of replacement algorithms for a virtual-storage computer", 1966.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "decide/slots/policy.h"
#include "trace/trace.h"

namespace moestro {

// LayerBegun() steps through the decode tokens of a trace in order. The trace must outlive this.
class BeladyPolicy final : public Policy {
 public:
  explicit BeladyPolicy(const Trace& trace);

  void Reset(const PolicyShape& shape) override;
  void LayerBegun(ExpertLayerId layer) override;
  void Inserted(SlotId slot, ExpertKey key, uint32_t rows) override;
  void Touched(SlotId slot, uint32_t rows) override;
  void Erased(SlotId slot) override;
  SlotId Victim(const PinView& pins) const override;

 private:
  static constexpr uint32_t kNever = ~0U;
  using Need = std::pair<uint32_t, uint32_t>;  // group of the next use, slot

  uint32_t NextUse(ExpertKey key) const;

  const Trace& trace_;
  std::vector<size_t> tokens_;          // the trace's decode tokens
  std::vector<uint32_t> next_use_;      // [group][K]: group of the same expert's next use
  std::vector<ExpertKey> keys_;         // [slot]
  std::vector<uint32_t> needed_again_;  // [slot]
  std::set<Need> needs_;
  ExpertLayers layers_;  // layers that decode tokens go through
  size_t group_ = 0;     // decode token * layers_.size() + layer - layers_.begin
  bool has_begun_ = false;
};

}  // namespace moestro
