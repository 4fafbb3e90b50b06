// SPDX-License-Identifier: MIT
// Reads at random places on a thread of its own while another thread computes: a disk and a
// processor that work at the same time give less than each gives alone.
//
// Thread rule: one thread calls the methods.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "base/result.h"
#include "core/extent.h"
#include "store/block_reader.h"
#include "store/read_queue.h"

namespace moestro {

class ReadsBeside {
 public:
  // Opens a reader on the thread that uses it: a ring belongs to its thread.
  using Open = std::function<Result<std::unique_ptr<BlockReader>>()>;
  // Begins to read as ProbeBandwidth() does, over and over.
  ReadsBeside(Open open, std::vector<Extent> regions, const ReadQueueOptions& reads);
  ReadsBeside(const ReadsBeside&) = delete;
  ReadsBeside& operator=(const ReadsBeside&) = delete;
  // Ends the reading and returns its bytes per second. Errors: those of `open` and of
  // ProbeBandwidth(). REQUIRES: called once.
  Result<double> Stop();

 private:
  void Read(const std::stop_token& stop);
  Status ReadUntil(const std::stop_token& stop);

  const Open open_;
  const std::vector<Extent> regions_;
  const ReadQueueOptions reads_;
  uint64_t bytes_ = 0;  // owned by thread_ until it ends, like seconds_ and error_
  double seconds_ = 0.0;
  std::optional<Error> error_;
  std::jthread thread_;  // goes first
};

}  // namespace moestro
