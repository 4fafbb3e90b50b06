// SPDX-License-Identifier: MIT
// The engine's side of a remote host's worker (worker.h): starts the worker, sends it messages,
// waits no longer than the limits allow, and gives the reason when the worker is lost.
//
// Thread rule: launches from the engine thread, writes from one other thread at a time; GiveUp()
// and the destructor end both.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/input_file.h"
#include "base/result.h"
#include "engine/engine_options.h"
#include "remote/worker.h"

namespace moestro {

// The address behind a host's name, if the host may be used: ggml's protocol has no key and is not
// encrypted.
//
// Thread rule: any thread.

// "192.168.1.20:50052": the first address of the name, as a number, so that no later lookup can
// give another one. Connects to it once. kUsage: the address is neither this machine's nor in a
// private network, and `takes_public` is false. kDevice: the name has no address, or no host
// answers at the address in two seconds.
Result<std::string> ResolveHost(const RemoteHost& host, bool takes_public);

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
