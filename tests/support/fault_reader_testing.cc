// SPDX-License-Identifier: MIT
#include "tests/support/fault_reader_testing.h"

#include <algorithm>
#include <utility>

#include "base/result.h"

namespace moestro {

FaultScript& FaultScript::Add(const Rule& rule) {
  rules_.push_back(rule);
  return *this;
}

FaultScript::Fault FaultScript::At(uint64_t nth) const {
  const auto fits = [nth](const Rule& r) { return r.is_lasting ? nth >= r.nth : nth == r.nth; };
  const auto rule = std::ranges::find_if(rules_, fits);
  return rule == rules_.end() ? Fault{} : rule->fault;
}

void FaultScript::Apply(const Fault& fault, BlockDone& done) {
  if (fault.error != 0) {
    done.error = fault.error;
    done.bytes = 0;
  } else if (fault.at_most) {
    done.bytes = std::min(done.bytes, *fault.at_most);
  }
}

FaultReader::FaultReader(std::unique_ptr<BlockReader> inner, FaultScript plan)
    : inner_(std::move(inner)), plan_(std::move(plan)) {}

bool FaultReader::Submit(const BlockRead& read) {
  BlockRead renamed = read;
  renamed.tag = submitted_;
  if (!inner_->Submit(renamed)) return false;
  pending_.emplace(submitted_, Pending{.tag = read.tag, .fault = plan_.At(submitted_)});
  ++submitted_;
  return true;
}

size_t FaultReader::Poll(std::span<BlockDone> out) {
  return Translate(out.first(inner_->Poll(out)));
}

size_t FaultReader::Wait(std::span<BlockDone> out) {
  return Translate(out.first(inner_->Wait(out)));
}

size_t FaultReader::WaitBriefly(std::span<BlockDone> out) {
  return Translate(out.first(inner_->WaitBriefly(out)));
}

size_t FaultReader::Translate(std::span<BlockDone> done) {
  for (BlockDone& d : done) {
    const auto found = pending_.find(d.tag);
    CHECK(found != pending_.end());
    d.tag = found->second.tag;
    FaultScript::Apply(found->second.fault, d);
    pending_.erase(found);
  }
  return done.size();
}

}  // namespace moestro
