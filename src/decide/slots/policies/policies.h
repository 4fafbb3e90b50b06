// SPDX-License-Identifier: MIT
// The replacement policies by recency, frequency and distance of layers, and a maker for each
// policy; policy.cc gives them names and parameters. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/ids.h"
#include "decide/slots/policy.h"

namespace moestro {

using PolicyValues = std::map<std::string, double, std::less<>>;

std::unique_ptr<Policy> MakeLru(const PolicyValues& values);
std::unique_ptr<Policy> MakeLfu(const PolicyValues& values);
std::unique_ptr<Policy> MakeLfuSeq(const PolicyValues& values);
std::unique_ptr<Policy> MakeLfru(const PolicyValues& values);
std::unique_ptr<Policy> MakeFld(const PolicyValues& values);
std::unique_ptr<Policy> MakeHobbit(const PolicyValues& values);
std::unique_ptr<Policy> MakeEdgeMoe(const PolicyValues& values);
std::unique_ptr<Policy> MakeNextUse(const PolicyValues& values);

// Least recently used: the baseline every engine ships.

class LruPolicy final : public Policy {
 public:
  void Reset(const PolicyShape& shape) override;
  void Inserted(SlotId slot, ExpertKey key, uint32_t rows) override;
  void Touched(SlotId slot, uint32_t rows) override;
  void Erased(SlotId slot) override;
  SlotId Victim(const PinView& pins) const override;

 private:
  // A ring through all used slots: links_[n] is the sentinel, its `next` the most recently used.
  struct Link {
    uint32_t previous = 0;
    uint32_t next = 0;
  };
  void Unlink(uint32_t i);
  void LinkFirst(uint32_t i);
  uint32_t sentinel() const { return static_cast<uint32_t>(links_.size() - 1); }

  std::vector<Link> links_ = {Link{}};
};

}  // namespace moestro
