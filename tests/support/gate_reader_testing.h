// SPDX-License-Identifier: MIT
// A disk behind a gate: who reads while it is shut waits, so that a test can look around while a
// step is under way.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "store/block_reader.h"

namespace moestro {

// Any thread.
class Gate {
 public:
  void Shut() {
    const std::lock_guard lock(mutex_);
    is_shut_ = true;
  }
  void Open() {
    {
      const std::lock_guard lock(mutex_);
      is_shut_ = false;
    }
    changed_.notify_all();
  }
  // Until somebody waits at the gate.
  void AwaitReader() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_ > 0; });
  }
  void Pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !is_shut_; });
    --waiting_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_shut_ = false;
  int waiting_ = 0;
};

class GateReader final : public BlockReader {
 public:
  // `gate` outlives it.
  GateReader(std::unique_ptr<BlockReader> inner, Gate& gate)
      : inner_(std::move(inner)), gate_(gate) {}

  uint64_t block() const override { return inner_->block(); }
  bool Submit(const BlockRead& read) override {
    gate_.Pass();
    return inner_->Submit(read);
  }
  size_t Poll(std::span<BlockDone> out) override { return inner_->Poll(out); }
  size_t Wait(std::span<BlockDone> out) override { return inner_->Wait(out); }
  size_t WaitBriefly(std::span<BlockDone> out) override { return inner_->WaitBriefly(out); }
  std::string description() const override { return inner_->description() + ", behind a gate"; }

 private:
  std::unique_ptr<BlockReader> inner_;
  Gate& gate_;
};

}  // namespace moestro
