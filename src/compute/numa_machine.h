// SPDX-License-Identifier: MIT
// The kernel's calls on a machine of several memory nodes, or of several kinds of cores. Tests use
// a made-up machine instead.
//
// Thread rule: any thread; "the thread" in a contract is the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/machine.h"

namespace moestro {

// Reads a machine's memory nodes from /sys and /proc.

// Parses a list of numbers as the kernel writes it, "0-3,8\n", ascending and apart. nullopt: `text`
// is no such list, or a number is larger than any CPU's.
std::optional<std::vector<uint32_t>> ParseCpuList(std::string_view text);

// `root` stands before /proc and /sys: a folder of made-up files, for tests. allowed: the CPUs on
// which this process may run. If anything is missing, cut off or contradictory, the topology has no
// known nodes.
NumaTopology ReadNumaTopology(const std::string& root, std::span<const uint32_t> allowed);

// The nodes that give pages which a thread touches first.
enum class NewPages : uint8_t {
  kUsual,       // the node on which the thread runs
  kPreferred,   // the first of some nodes, while that node has free pages
  kInterleaved  // some nodes in turn
};

// CPUs on which this process may run.
struct CpuKinds {
  std::vector<uint32_t> all = {};
  std::vector<uint32_t> fast = {};  // where others are much slower (FastCpus()); else empty
};

class NumaMachine {
 public:
  virtual ~NumaMachine() = default;

  virtual NumaTopology topology() const = 0;
  virtual CpuKinds cpus() const = 0;
  // Whether the process was started with a memory policy of its own.
  virtual bool has_chosen_pages() const = 0;

  // The following functions return 0 or an errno, after which nothing has changed. The thread, and
  // threads that it starts, run on these CPUs alone.
  virtual int RunOn(std::span<const uint32_t> cpus) = 0;
  // Sets the source of new pages for the thread, and for threads that it starts.
  virtual int TakePages(NewPages how, std::span<const uint32_t> nodes) = 0;
  // Keeps whole, untouched pages of `memory` small.
  virtual int KeepSmall(std::span<std::byte> memory) = 0;
  // Touches pages on the thread, without changing their bytes.
  virtual int Touch(std::span<std::byte> memory) = 0;
};

class KernelNumaMachine : public NumaMachine {
 public:
  NumaTopology topology() const override;
  CpuKinds cpus() const override;
  bool has_chosen_pages() const override;
  int RunOn(std::span<const uint32_t> cpus) override;
  int TakePages(NewPages how, std::span<const uint32_t> nodes) override;
  int KeepSmall(std::span<std::byte> memory) override;
  int Touch(std::span<std::byte> memory) override;
};

}  // namespace moestro
