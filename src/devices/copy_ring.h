// SPDX-License-Identifier: MIT
// Copies to a device of this machine that the device makes itself, from pinned memory: bytes of
// plain memory pass through a ring of pinned pieces, so that one piece is filled while the device
// copies others; bytes of pinned memory go directly. The copies have a ggml backend of their own,
// since a backend is not for two threads.
//
// A driver may make two copies to the same bytes in any order, so a slot is written again only
// after Await().
//
// Thread rule: one thread, which may be another than the engine's.
#pragma once

#include <ggml.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/result.h"
#include "compute/backend_calls.h"
#include "compute/devices.h"
#include "compute/host_memory.h"

namespace moestro {

class CopyRing {
 public:
  static constexpr size_t kPieces = 4;
  static constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
  static constexpr uint64_t kBytes = kPieces * kPieceBytes;

  // The driver's side; tests have one of their own.
  struct Driver {
    // Begins a copy. The bytes stay as they are until await(piece). kDevice, here and below.
    std::function<Status(ggml_tensor*, uint64_t offset, std::span<const std::byte>, size_t piece)>
        send;
    std::function<Status(size_t piece)> await;  // waits for the last send() of a piece
    std::function<Status()> drain;              // waits for all
  };
  // kDevice, kNoMemory: the device has no pinned memory, no events or no second backend.
  static Result<std::unique_ptr<CopyRing>> Create(const ComputeDevice& device);
  // memory: kBytes.
  CopyRing(HostMemory memory, Driver driver)
      : memory_(std::move(memory)), driver_(std::move(driver)) {}
  CopyRing(const CopyRing&) = delete;
  CopyRing& operator=(const CopyRing&) = delete;

  // Begins a copy and returns its number for Await(); waits only for pieces of the ring. The bytes
  // must live until Await(). is_pinned: the bytes are in memory that the device's driver has
  // pinned. kDevice, here and below: no later copy waits for this one.
  Result<uint64_t> Begin(ggml_tensor* tensor, uint64_t offset, std::span<const std::byte> bytes,
                         bool is_pinned);
  // Waits until the copy has landed, and all before. Of copies that were under way when the driver
  // failed, each fails.
  Status Await(uint64_t number);

 private:
  Status Send(ggml_tensor* tensor, uint64_t offset, std::span<const std::byte> bytes,
              bool is_pinned);
  Status LandNext();
  std::unexpected<Error> Broke(const Error& why);

  HostMemory memory_;
  Driver driver_;
  uint64_t n_sent_ = 0;     // pieces sent so far; the next one is in place n_sent_ % kPieces
  uint64_t n_landed_ = 0;   // of these, pieces that are under way no more
  uint64_t n_awaited_ = 0;  // the last number that Await() was asked for
  // Pieces lost_from_ + 1 to lost_to_ may not have landed.
  uint64_t lost_from_ = 0;
  uint64_t lost_to_ = 0;
};

}  // namespace moestro
