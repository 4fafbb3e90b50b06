// SPDX-License-Identifier: MIT
// For tests: a machine of as many memory nodes as a test likes, which notes what is asked of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "compute/numa_machine.h"

namespace moestro {

class NotedNumaMachine final : public NumaMachine {
 public:
  struct Touched {
    std::span<std::byte> memory;
    NewPages how;
    std::vector<uint32_t> nodes;
    std::vector<uint32_t> cpus;  // of the thread; empty: it was not moved
  };
  struct Fault {
    int run_on = 0;
    int take_pages = 0;
    int keep_small = 0;
  };

  // Nodes of one CPU each, with the node's number.
  explicit NotedNumaMachine(uint32_t nodes) {
    here.is_whole = true;
    for (uint32_t n = 0; n < nodes; ++n) {
      here.nodes.push_back({.id = n, .cpus = {n}, .cores = 1, .has_memory = true});
    }
  }

  NumaTopology topology() const override {
    ++asked;
    return here;
  }
  CpuKinds cpus() const override { return kinds; }
  bool has_chosen_pages() const override {
    ++asked_for_pages;
    return is_chosen;
  }
  int RunOn(std::span<const uint32_t> cpus) override {
    const std::lock_guard lock(mutex_);
    ++calls;
    if (fault.run_on == 0) threads_[std::this_thread::get_id()].cpus.assign_range(cpus);
    return fault.run_on;
  }
  int TakePages(NewPages how, std::span<const uint32_t> nodes) override {
    const std::lock_guard lock(mutex_);
    ++calls;
    if (fault.take_pages != 0) return fault.take_pages;
    Thread& thread = threads_[std::this_thread::get_id()];
    thread.how = how;
    thread.nodes.assign_range(nodes);
    return 0;
  }
  int KeepSmall(std::span<std::byte> memory) override {
    const std::lock_guard lock(mutex_);
    ++calls;
    small.push_back(memory);
    return fault.keep_small;
  }
  int Touch(std::span<std::byte> memory) override {
    const std::lock_guard lock(mutex_);
    ++calls;
    const Thread& thread = threads_[std::this_thread::get_id()];
    touched.push_back(
        {.memory = memory, .how = thread.how, .nodes = thread.nodes, .cpus = thread.cpus});
    return 0;
  }

  // How threads are left, those that were asked for anything.
  struct Thread {
    std::vector<uint32_t> cpus;
    NewPages how = NewPages::kUsual;
    std::vector<uint32_t> nodes;
  };
  std::vector<Thread> threads() const {
    std::vector<Thread> all;
    for (const auto& [id, thread] : threads_) all.push_back(thread);
    std::ranges::sort(all, {}, &Thread::cpus);
    return all;
  }

  NumaTopology here;
  CpuKinds kinds;
  Fault fault;
  bool is_chosen = false;
  mutable int asked = 0;
  mutable int asked_for_pages = 0;
  int calls = 0;  // that would have changed something
  std::vector<Touched> touched;
  std::vector<std::span<std::byte>> small;

 private:
  std::mutex mutex_;
  std::map<std::thread::id, Thread> threads_;
};

}  // namespace moestro
