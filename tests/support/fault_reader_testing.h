// SPDX-License-Identifier: MIT
// A disk that fails on purpose: wraps any reader, so that tests inject faults into a real engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "store/block_reader.h"

namespace moestro {

// Which reads go wrong. Reads are counted from 0 in the order in which they are submitted.
class FaultScript {
 public:
  struct Fault {
    int error = 0;                    // an errno value; 0: no error
    std::optional<uint64_t> at_most;  // bytes that may arrive; empty: all
  };

  FaultScript& ErrorAt(uint64_t nth, int error) { return Add({nth, false, {error, {}}}); }
  FaultScript& ErrorFrom(uint64_t nth, int error) { return Add({nth, true, {error, {}}}); }
  FaultScript& ShortAt(uint64_t nth, uint64_t bytes) { return Add({nth, false, {0, bytes}}); }
  FaultScript& ShortFrom(uint64_t nth, uint64_t bytes) { return Add({nth, true, {0, bytes}}); }

  Fault At(uint64_t nth) const;                            // the first rule that fits
  static void Apply(const Fault& fault, BlockDone& done);  // rewrites a result accordingly

 private:
  struct Rule {
    uint64_t nth;
    bool is_lasting;  // also every read after the nth
    Fault fault;
  };
  FaultScript& Add(const Rule& rule);
  std::vector<Rule> rules_;
};

// Every read is carried out by the wrapped reader; only its result is changed.
class FaultReader final : public BlockReader {
 public:
  explicit FaultReader(std::unique_ptr<BlockReader> inner, FaultScript plan = {});

  // Takes effect for reads submitted from now on; see submitted() for "the next one".
  void SetPlan(FaultScript plan) { plan_ = std::move(plan); }
  uint64_t submitted() const { return submitted_; }

  uint64_t block() const override { return inner_->block(); }
  bool Submit(const BlockRead& read) override;
  size_t Poll(std::span<BlockDone> out) override;
  size_t Wait(std::span<BlockDone> out) override;
  size_t WaitBriefly(std::span<BlockDone> out) override;
  std::string description() const override { return inner_->description() + ", faults injected"; }

 private:
  struct Pending {
    uint64_t tag;
    FaultScript::Fault fault;
  };
  size_t Translate(std::span<BlockDone> done);

  std::unique_ptr<BlockReader> inner_;
  FaultScript plan_;
  uint64_t submitted_ = 0;  // also the tag that the wrapped reader sees
  std::unordered_map<uint64_t, Pending> pending_;
};

}  // namespace moestro
