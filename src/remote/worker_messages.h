// SPDX-License-Identifier: MIT
// Messages between the engine's process and a remote host's worker: values of fixed size over two
// sockets that keep messages whole; rows and weights lie in shared memory. Both processes are the
// same program, so values are sent as they lie in memory.
//
//   WorkerSetup                  -> WorkerReply, once the host has been reached; again, once the
//                                   slots are allocated
//   LaunchMessage  (first socket)  -> WorkerReply, once y is in the flight's place
//   WriteMessage   (second socket) -> WorkerReply, once the bytes are on their way
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/bytes.h"
#include "core/expert_catalog.h"
#include "devices/transport.h"

namespace moestro {

inline constexpr size_t kMostWorkerForms = 32;
inline constexpr uint32_t kWorkerFlights = 4;
inline constexpr uint32_t kWorkerPairs = 64;  // pairs in a launch
// Bytes of an upload's piece. A server that was started with -c keeps pieces of more than 10 MiB on
// its disk.
inline constexpr uint64_t kUploadBytes = 16 * kMiB;

struct WorkerSetup {
  std::array<char, 64> endpoint{};  // "192.168.1.20:50052", with a zero behind it
  uint64_t bytes = 0;               // for slots on the host; 0: the free memory less a margin
  LaunchShape shape = {};
  uint32_t n_forms = 0;
  std::array<CopyForm, kMostWorkerForms> forms{};
  std::array<uint64_t, kMostWorkerForms> experts{};  // experts of each form in the whole model
};

struct LaunchMessage {
  uint32_t flight = 0;
  uint32_t form = 0;
  uint32_t n_pairs = 0;
  bool is_one_row = false;  // x is one row for all pairs
};

struct WriteMessage {
  uint32_t form = 0;
  Matrix matrix{};
  uint32_t slot = 0;
  uint64_t offset = 0;  // bytes into the slot
  // At the beginning of the place for uploads; may reach into the slots behind `slot`.
  uint64_t bytes = 0;
};

struct WorkerReply {
  bool is_good = false;
  std::array<char, 400> error{};  // with a zero behind it
  // Set in the replies to WorkerSetup.
  uint64_t memory_free = 0;                        // on the host
  uint64_t resident = 0;                           // of the worker's process
  std::array<uint64_t, kMostWorkerForms> slots{};  // of each form
};

static_assert(std::is_trivially_copyable_v<WorkerSetup>);
static_assert(std::is_trivially_copyable_v<LaunchMessage>);
static_assert(std::is_trivially_copyable_v<WriteMessage>);
static_assert(std::is_trivially_copyable_v<WorkerReply>);

// Places in the shared memory, in bytes.
struct WorkerLayout {
  uint64_t row_bytes = 0;  // of x and of y

  explicit WorkerLayout(const LaunchShape& shape)
      : row_bytes(uint64_t{shape.n_embd} * sizeof(float)) {}
  uint64_t flight_bytes() const {
    return AlignUp(kWorkerPairs * (2 * row_bytes + sizeof(int32_t)), uint64_t{64});
  }
  uint64_t x(uint32_t flight) const { return kUploadBytes + flight * flight_bytes(); }
  uint64_t y(uint32_t flight) const { return x(flight) + kWorkerPairs * row_bytes; }
  uint64_t slots(uint32_t flight) const { return y(flight) + kWorkerPairs * row_bytes; }
  uint64_t all() const { return x(kWorkerFlights); }
};

}  // namespace moestro
