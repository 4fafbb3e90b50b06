// SPDX-License-Identifier: MIT
// A remote host's worker that lies: the program's own worker in a process behind this one, whose
// results it changes. Run as MOESTRO_LYING_WORKER, with these variables:
//
//   MOESTRO_TEST_WORKER  the program whose worker is behind it
//   MOESTRO_TEST_LIE     "KIND AFTER WHICH": from launch AFTER on, results of all slots (all) or of
//                        the first of that launch (one) are off by a bit (bit), not a number (nan),
//                        another pair's (swap), or of the launch before (stale). A fourth word is
//                        the address of the only host that lies
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "remote/worker.h"

namespace moestro {
namespace {

struct Lie {
  std::string kind;
  int after = 0;
  std::string which;
  std::string host;
};

Lie LieOf(const char* text) {
  Lie lie;
  std::istringstream words(text != nullptr ? text : "");
  words >> lie.kind >> lie.after >> lie.which >> lie.host;
  return lie;
}

class LyingWorker {
 public:
  LyingWorker(const WorkerSetup& setup, SharedRegion region, Lie lie)
      : layout_(setup.shape),
        width_(setup.shape.n_embd),
        region_(std::move(region)),
        lie_(std::move(lie)),
        lies_(lie_.host.empty() || lie_.host == setup.endpoint.data()) {}

  // A launch has been answered.
  void Change(const LaunchMessage& launch) {
    auto* const y = reinterpret_cast<float*>(region_.data() + layout_.y(launch.flight));
    const std::vector<float> told(y, y + launch.n_pairs * width_);
    if (lies_ && launches_++ >= lie_.after) ChangeRows(launch, y, told);
    before_ = told;
  }

 private:
  void ChangeRows(const LaunchMessage& launch, float* y, const std::vector<float>& told) {
    const auto* const slots =
        reinterpret_cast<const int32_t*>(region_.data() + layout_.slots(launch.flight));
    if (slot_ < 0) slot_ = slots[0];
    for (uint32_t i = 0; i < launch.n_pairs; ++i) {
      if (lie_.which == "one" && slots[i] != slot_) continue;
      float* const row = y + i * width_;
      if (lie_.kind == "bit") {
        uint32_t bits = 0;
        std::memcpy(&bits, row, sizeof(bits));
        bits ^= 1U;
        std::memcpy(row, &bits, sizeof(bits));
      } else if (lie_.kind == "nan") {
        row[width_ / 2] = std::numeric_limits<float>::quiet_NaN();
      } else if (lie_.kind == "swap") {
        std::memcpy(row, told.data() + (launch.n_pairs - 1 - i) * width_, width_ * sizeof(float));
        row[0] = -row[0];
      } else if (lie_.kind == "stale" && before_.size() >= width_) {
        std::memcpy(row, before_.data(), width_ * sizeof(float));
      }
    }
  }

  WorkerLayout layout_;
  size_t width_;
  SharedRegion region_;
  Lie lie_;
  bool lies_;
  int launches_ = 0;
  int32_t slot_ = -1;
  std::vector<float> before_;
};

template <class Message>
bool Pass(int from, int to, Message& message) {
  return recv(from, &message, sizeof(message), 0) == static_cast<ssize_t>(sizeof(message)) &&
         send(to, &message, sizeof(message), MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(message));
}

// The sockets to the worker behind: launches, writes.
bool Begin(std::array<int, 2>& behind) {
  std::array<int, 2> launches{};
  std::array<int, 2> writes{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, launches.data()) != 0 ||
      socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, writes.data()) != 0) {
    return false;
  }
  posix_spawn_file_actions_t actions{};
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, launches[1], kWorkerLaunches);
  posix_spawn_file_actions_adddup2(&actions, writes[1], kWorkerWrites);
  std::string name = "moestro";
  std::string argument(kWorkerArgument);
  std::array<char*, 3> arguments{name.data(), argument.data(), nullptr};
  pid_t process = -1;
  const int error = posix_spawn(&process, std::getenv("MOESTRO_TEST_WORKER"), &actions, nullptr,
                                arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(launches[1]);
  close(writes[1]);
  behind = {launches[0], writes[0]};
  return error == 0;
}

int Work() {
  std::array<int, 2> behind{};
  if (!Begin(behind)) return 2;
  WorkerSetup setup;
  WorkerReply reply;
  if (!Pass(kWorkerLaunches, behind[0], setup)) return 1;
  for (int i = 0; i < 2; ++i) {
    if (!Pass(behind[0], kWorkerLaunches, reply) || !reply.is_good) return 1;
  }
  auto region = SharedRegion::Map(UniqueFd(dup(kWorkerMemory)), WorkerLayout(setup.shape).all());
  if (!region) return 2;
  LyingWorker lying(setup, *std::move(region), LieOf(std::getenv("MOESTRO_TEST_LIE")));
  while (true) {
    std::array<pollfd, 2> asked{pollfd{.fd = kWorkerLaunches, .events = POLLIN, .revents = 0},
                                pollfd{.fd = kWorkerWrites, .events = POLLIN, .revents = 0}};
    if (poll(asked.data(), asked.size(), -1) < 0) return 1;
    if (asked[0].revents != 0) {
      LaunchMessage launch;
      if (!Pass(kWorkerLaunches, behind[0], launch)) return 1;
      if (recv(behind[0], &reply, sizeof(reply), 0) != static_cast<ssize_t>(sizeof(reply)))
        return 1;
      lying.Change(launch);
      if (send(kWorkerLaunches, &reply, sizeof(reply), MSG_NOSIGNAL) < 0) return 1;
    } else {
      WriteMessage write;
      if (!Pass(kWorkerWrites, behind[1], write)) return 1;
      if (!Pass(behind[1], kWorkerWrites, reply)) return 1;
    }
  }
}

}  // namespace
}  // namespace moestro

int main() { return moestro::Work(); }
