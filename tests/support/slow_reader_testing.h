// SPDX-License-Identifier: MIT
// A disk that answers late and out of order: wraps any reader and keeps each result back for a
// while that depends on a seed.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "store/block_reader.h"

namespace moestro {

class SlowReader final : public BlockReader {
 public:
  SlowReader(std::unique_ptr<BlockReader> inner, uint32_t seed)
      : inner_(std::move(inner)), random_(seed) {}

  uint64_t block() const override { return inner_->block(); }
  bool Submit(const BlockRead& read) override { return inner_->Submit(read); }
  size_t Poll(std::span<BlockDone> out) override {
    std::vector<BlockDone> done(out.size());
    done.resize(inner_->Poll(done));
    for (const BlockDone& one : done) kept_.push_back({.polls = random_() % 50, .done = one});
    size_t n = 0;
    std::erase_if(kept_, [&](Kept& kept) {
      if (n == out.size() || kept.polls-- > 0) return false;
      out[n++] = kept.done;
      return true;
    });
    return n;
  }
  size_t Wait(std::span<BlockDone> out) override {
    if (kept_.empty()) {
      std::vector<BlockDone> done(out.size());
      done.resize(inner_->Wait(done));
      for (const BlockDone& one : done) kept_.push_back({.polls = random_() % 50, .done = one});
      if (kept_.empty()) return 0;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 200));
    for (Kept& kept : kept_) kept.polls = 0;
    return Poll(out);
  }
  std::string description() const override { return inner_->description() + ", slow"; }

 private:
  struct Kept {
    uint64_t polls = 0;  // until it is given
    BlockDone done;
  };
  std::unique_ptr<BlockReader> inner_;
  std::mt19937 random_;
  std::vector<Kept> kept_;
};

}  // namespace moestro
