// SPDX-License-Identifier: MIT
// What is asked of the kernel on a machine of several memory nodes. Tests put a machine that is
// made up in its place.
//
// Thread rule: any thread; calls with "thread" in their contract are about the one that calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/numa_topology.h"

namespace moestro {

// Where pages that a thread touches first are taken from.
enum class NewPages : uint8_t {
  kUsual,       // from the node on which it runs
  kPreferred,   // from the first of some nodes while that has any
  kInterleaved  // from some nodes in turn
};

class NumaMachine {
 public:
  virtual ~NumaMachine() = default;

  virtual NumaTopology topology() const = 0;
  // Whether who started this thread's process has chosen where its pages come from.
  virtual bool has_chosen_pages() const = 0;

  // Each of the following returns 0 or an errno, after which nothing has changed.
  // The thread runs on these CPUs alone, and so do threads that it starts.
  virtual int RunOn(std::span<const uint32_t> cpus) = 0;
  // For the thread, and for those that it starts.
  virtual int TakePages(NewPages how, std::span<const uint32_t> nodes) = 0;
  // Pages of `memory`, whole ones that nobody has touched, become small ones.
  virtual int KeepSmall(std::span<std::byte> memory) = 0;
  // The thread touches these pages, whose bytes stay as they are.
  virtual int Touch(std::span<std::byte> memory) = 0;
};

class KernelNumaMachine : public NumaMachine {
 public:
  NumaTopology topology() const override;
  bool has_chosen_pages() const override;
  int RunOn(std::span<const uint32_t> cpus) override;
  int TakePages(NewPages how, std::span<const uint32_t> nodes) override;
  int KeepSmall(std::span<std::byte> memory) override;
  int Touch(std::span<std::byte> memory) override;
};

}  // namespace moestro
