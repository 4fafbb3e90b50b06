// SPDX-License-Identifier: MIT
// A disk made of memory, for tests: reads take as many polls, and finish in the order, that the
// script says. Bytes arrive when a read finishes; until then its target holds kPoison, so that code
// which uses them too early is found out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "store/block_reader.h"
#include "tests/support/fault_reader_testing.h"

namespace moestro {

struct MemoryScript {
  enum class Order : uint8_t { kSubmitted, kReversed, kByHand };
  unsigned polls = 0;               // calls of Poll() that come back empty before a read finishes
  Order order = Order::kSubmitted;  // of reads that may finish in one call
  unsigned queue_depth = 32;
  FaultScript faults = {};
};

class MemoryReader final : public BlockReader {
 public:
  static constexpr std::byte kPoison{0xA5};

  explicit MemoryReader(std::vector<std::vector<std::byte>> files, MemoryScript script = {});

  uint64_t block() const override { return 4096; }
  bool Submit(const BlockRead& read) override;
  size_t Poll(std::span<BlockDone> out) override;
  // Does not wait for polls to pass. By hand: what was let go, else the oldest read.
  size_t Wait(std::span<BlockDone> out) override;
  std::string description() const override { return "memory"; }

  // Order kByHand: reads wait here, oldest first, until LetGo() allows one to finish.
  // REQUIRES: index < waiting().size().
  std::vector<BlockRead> waiting() const;
  void LetGo(size_t index);

 private:
  struct Pending {
    BlockRead read;
    uint64_t ready_at;  // value of polls_ from which on it may finish
    FaultScript::Fault fault;
  };
  BlockDone Finish(const Pending& pending) const;
  size_t Take(std::span<BlockDone> out, uint64_t now);

  std::vector<std::vector<std::byte>> files_;
  MemoryScript script_;
  uint64_t submitted_ = 0;
  uint64_t polls_ = 0;
  std::vector<Pending> pending_;  // in the order of Submit()
};

}  // namespace moestro
