// SPDX-License-Identifier: MIT
// The process that serves one remote host, its messages, the memory that it shares with the
// engine's process, and the engine's side of it. ggml's client ends its process when the host goes,
// so the client runs in a process of its own, whose last words on stderr are the reason.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/input_file.h"
#include "base/number.h"
#include "base/result.h"
#include "core/expert_catalog.h"
#include "devices/transport.h"
#include "engine/engine_options.h"

namespace moestro {

// Memory that two processes share, by a descriptor without a name.
class SharedRegion {
 public:
  // kNoMemory, kIo.
  static Result<SharedRegion> Create(uint64_t bytes);
  // Maps another process's region. kIo, also if the region is smaller than `bytes`.
  static Result<SharedRegion> Map(UniqueFd fd, uint64_t bytes);
  SharedRegion() = default;
  SharedRegion(SharedRegion&& other) noexcept
      : fd_(std::move(other.fd_)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  SharedRegion& operator=(SharedRegion&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~SharedRegion();

  int fd() const { return fd_.get(); }
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  UniqueFd fd_;
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// Messages between the engine's process and a remote host's worker: values of fixed size over two
// sockets that keep messages whole; rows and weights lie in shared memory. Both processes are the
// same program, so values are sent as they lie in memory.
//
//   WorkerSetup                  -> WorkerReply, once the host has been reached; again, once the
//                                   slots are allocated
//   LaunchMessage  (first socket)  -> WorkerReply, once y is in the flight's place
//   WriteMessage   (second socket) -> WorkerReply, once the bytes are on their way

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

// The program's first argument for this process; WorkerProcess starts it with the descriptors
// below.
inline constexpr std::string_view kWorkerArgument = "remote-worker";
inline constexpr int kWorkerLaunches = 3;  // socket
inline constexpr int kWorkerWrites = 4;    // socket
inline constexpr int kWorkerMemory = 5;

// Serves until the engine's process is gone. The exit code.
int RemoteWorkerMain();

// The address behind a host's name, if the host may be used: ggml's protocol has no key and is not
// encrypted. Thread rule: any thread.
//
// "192.168.1.20:50052": the first address of the name, as a number, so that no later lookup can
// give another one. Connects to it once. kUsage: the address is neither this machine's nor in a
// private network, and `takes_public` is false. kDevice: the name has no address, or no host
// answers at the address in two seconds.
Result<std::string> ResolveHost(const RemoteHost& host, bool takes_public);

// The engine's side of a remote host's worker: starts the worker, sends it messages, waits no
// longer than the limits allow, and gives the reason when the worker is lost.
//
// Thread rule: launches from the engine thread, writes from one other thread at a time; GiveUp()
// and the destructor end both.
class WorkerProcess {
 public:
  struct Limits {
    double reach_seconds = 2.0;  // for the host to answer at all: another client may use it
    double reply_seconds = 4.0;  // for a launch, or a piece of an upload
  };
  // `program`: this program's file. `host`: for messages. kDevice: the host is of no use, with the
  // reason; kIo: no process can be started.
  static Result<std::unique_ptr<WorkerProcess>> Start(const std::string& program,
                                                      const std::string& host,
                                                      const WorkerSetup& setup, Limits limits);
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  ~WorkerProcess();  // ends the process

  const std::string& host() const { return host_; }
  const WorkerReply& ready() const { return ready_; }
  pid_t id() const { return process_; }
  bool is_lost() const { return is_lost_; }

  // Places in the shared memory.
  float* x(uint32_t flight) const { return At<float>(layout_.x(flight)); }
  float* y(uint32_t flight) const { return At<float>(layout_.y(flight)); }
  int32_t* slots(uint32_t flight) const { return At<int32_t>(layout_.slots(flight)); }
  std::byte* upload() const { return region_.data(); }

  // Does not wait. One AwaitLaunch() for each. kDevice here and below: the process is ended, and
  // every later call fails with the same reason.
  Status Launch(const LaunchMessage& launch);
  Status AwaitLaunch();
  // Waits until the bytes are on their way.
  Status Write(const WriteMessage& write);
  // The host is of no use any more.
  void GiveUp(const std::string& why) { (void)Lose(why); }

 private:
  WorkerProcess(std::string host, const LaunchShape& shape, Limits limits)
      : host_(std::move(host)), limits_(limits), layout_(shape) {}
  Status Begin(const std::string& program, const WorkerSetup& setup);
  Status Spawn(const std::string& program, int launches, int writes, int errors);
  // taken: null if only success matters.
  Status AwaitReply(int socket, double seconds, WorkerReply* taken = nullptr);
  std::unexpected<Error> Lose(const std::string& why);
  std::string LastWords();
  template <class T>
  T* At(uint64_t offset) const {
    return reinterpret_cast<T*>(region_.data() + offset);
  }

  const std::string host_;
  const Limits limits_;
  const WorkerLayout layout_;
  SharedRegion region_;
  UniqueFd launches_;
  UniqueFd writes_;
  UniqueFd errors_;  // the worker's stderr
  pid_t process_ = -1;
  WorkerReply ready_;
  std::atomic<bool> is_lost_ = false;
  std::mutex mutex_;  // guards the member below
  std::string reason_;
};

}  // namespace moestro
