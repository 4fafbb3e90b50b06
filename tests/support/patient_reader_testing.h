// SPDX-License-Identifier: MIT
// A disk that reads only when somebody waits, one read at a time, so that a test can count what it
// was given and what was waited for.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "store/block_reader.h"

namespace moestro {

// What a PatientReader and its test know in common.
struct PatientDisk {
  std::deque<BlockRead> given;  // to it, and not waited for yet
  uint64_t waits = 0;
  uint64_t fails_at = UINT64_MAX;  // reads that begin there fail, and go before all others
};

class PatientReader final : public BlockReader {
 public:
  // `disk` outlives it.
  PatientReader(std::unique_ptr<BlockReader> inner, PatientDisk& disk)
      : inner_(std::move(inner)), disk_(disk) {}

  uint64_t block() const override { return inner_->block(); }
  bool Submit(const BlockRead& read) override {
    if (read.offset == disk_.fails_at) {
      disk_.given.push_front(read);
    } else {
      disk_.given.push_back(read);
    }
    return true;
  }
  size_t Poll(std::span<BlockDone> /*out*/) override { return 0; }
  size_t Wait(std::span<BlockDone> out) override {
    if (disk_.given.empty()) return 0;
    ++disk_.waits;
    const BlockRead read = disk_.given.front();
    if (read.offset == disk_.fails_at) {
      disk_.given.pop_front();
      out[0] = {.tag = read.tag, .error = EIO, .bytes = 0};
      return 1;
    }
    if (!inner_->Submit(read)) return 0;
    disk_.given.pop_front();
    return inner_->Wait(out.first(1));
  }
  std::string description() const override { return inner_->description() + ", patient"; }

 private:
  std::unique_ptr<BlockReader> inner_;
  PatientDisk& disk_;
};

}  // namespace moestro
