// SPDX-License-Identifier: MIT
#include "remote/worker_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/input_file.h"
#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "remote/worker.h"

namespace moestro {
namespace {

constexpr int kConnectMilliseconds = 2000;

Status Connect(const sockaddr_in& address, const std::string& name) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto fail = [&](int error) {
    return Fail(Errc::kDevice, "the remote host {}: {}", name, std::strerror(error));
  };
  if (fd.get() < 0) return fail(errno);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
    return {};
  if (errno != EINPROGRESS) return fail(errno);
  pollfd waited{.fd = fd.get(), .events = POLLOUT, .revents = 0};
  if (poll(&waited, 1, kConnectMilliseconds) <= 0) return fail(ETIMEDOUT);
  int error = 0;
  socklen_t bytes = sizeof(error);
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  return error == 0 ? Status() : fail(error);
}

}  // namespace

Result<std::string> ResolveHost(const RemoteHost& host, bool takes_public) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.host.c_str(), nullptr, &hints, &found);
  if (error != 0 || found == nullptr) {
    return Fail(Errc::kDevice, "the remote host {}: {}", host.address(),
                error != 0 ? gai_strerror(error) : "no address");
  }
  sockaddr_in address{};
  std::memcpy(&address, found->ai_addr, sizeof(address));
  freeaddrinfo(found);
  address.sin_port = htons(host.port);
  const uint32_t number = ntohl(address.sin_addr.s_addr);
  std::array<char, INET_ADDRSTRLEN> text{};
  inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
  if (!takes_public && !IsLoopback(number) && !IsPrivate(number)) {
    return Fail(Errc::kUsage,
                "{} is {}, which is in no private network, and what goes there is not encrypted: "
                "tunnel it with ssh or WireGuard, or give --remote-insecure",
                host.address(), text.data());
  }
  TRY_STATUS(Connect(address, host.address()));
  return Format("{}:{}", text.data(), host.port);
}

namespace {

using SteadyClock = std::chrono::steady_clock;

// A host clears the memory of its slots at this rate first.
constexpr double kClearedPerSecond = 1e9;

struct SocketPair {
  UniqueFd ours;
  UniqueFd theirs;
};

Result<SocketPair> MakeSockets() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Fail(Errc::kIo, "no sockets for a process: {}", std::strerror(errno));
  }
  return SocketPair{.ours = UniqueFd(ends[0]), .theirs = UniqueFd(ends[1])};
}

template <class Message>
bool Say(int socket, const Message& message) {
  return send(socket, &message, sizeof(message), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof(message));
}

class SpawnActions {
 public:
  SpawnActions() { posix_spawn_file_actions_init(&actions_); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  ~SpawnActions() { posix_spawn_file_actions_destroy(&actions_); }
  // Descriptors were moved above all of the worker's numbers (Above()), so that none is overwritten
  // before its copy.
  void Give(int fd, int as) { posix_spawn_file_actions_adddup2(&actions_, fd, as); }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

// A copy with a number above the descriptors that worker.h fixes for the worker.
UniqueFd Above(int fd) { return UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 16)); }

std::string_view TextOf(const std::array<char, 400>& text) {
  return {text.data(), strnlen(text.data(), text.size())};
}

}  // namespace

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::Start(const std::string& program,
                                                            const std::string& host,
                                                            const WorkerSetup& setup,
                                                            Limits limits) {
  std::unique_ptr<WorkerProcess> worker(new WorkerProcess(host, setup.shape, limits));
  TRY_STATUS(worker->Begin(program, setup));
  return worker;
}

Status WorkerProcess::Begin(const std::string& program, const WorkerSetup& setup) {
  TRY(region_, SharedRegion::Create(layout_.all()));
  TRY(SocketPair launches, MakeSockets());
  TRY(SocketPair writes, MakeSockets());
  std::array<int, 2> errors{};
  if (pipe2(errors.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    return Fail(Errc::kIo, "no pipe for a process: {}", std::strerror(errno));
  }
  errors_ = UniqueFd(errors[0]);
  const UniqueFd their_errors(errors[1]);
  TRY_STATUS(Spawn(program, launches.theirs.get(), writes.theirs.get(), their_errors.get()));
  launches_ = std::move(launches.ours);
  writes_ = std::move(writes.ours);
  if (!Say(launches_.get(), setup)) return Lose("its process ended at once");
  TRY_STATUS(AwaitReply(launches_.get(), limits_.reach_seconds));
  const double clearing = static_cast<double>(setup.bytes) / kClearedPerSecond;
  return AwaitReply(launches_.get(), limits_.reply_seconds + clearing, &ready_);
}

// Starts the worker with the sockets and the memory at the descriptors of worker.h.
Status WorkerProcess::Spawn(const std::string& program, int launches, int writes, int errors) {
  const UniqueFd first = Above(launches);
  const UniqueFd second = Above(writes);
  const UniqueFd third = Above(region_.fd());
  const UniqueFd last = Above(errors);
  SpawnActions actions;
  actions.Give(last.get(), STDOUT_FILENO);  // stdout is for answers, here
  actions.Give(last.get(), STDERR_FILENO);
  actions.Give(first.get(), kWorkerLaunches);
  actions.Give(second.get(), kWorkerWrites);
  actions.Give(third.get(), kWorkerMemory);
  std::string name = "moestro";
  std::string argument(kWorkerArgument);
  std::array<char*, 3> arguments{name.data(), argument.data(), nullptr};
  const int error =
      posix_spawn(&process_, program.c_str(), actions.get(), nullptr, arguments.data(), environ);
  if (error == 0) return {};
  process_ = -1;
  return Fail(Errc::kIo, "no process for {}: {}", host_, std::strerror(error));
}

WorkerProcess::~WorkerProcess() {
  if (process_ <= 0) return;
  if (!is_lost_) kill(process_, SIGKILL);
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// Waits for the next reply; the worker replies in the order of the messages.
Status WorkerProcess::AwaitReply(int socket, double seconds, WorkerReply* taken) {
  if (is_lost_) return Lose("");
  const auto end = SteadyClock::now() + std::chrono::duration<double>(seconds);
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - SteadyClock::now()).count();
    pollfd waited{.fd = socket, .events = POLLIN, .revents = 0};
    const int ready = poll(&waited, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return Lose(Format("it has not answered for {:.0f} s", seconds));
    WorkerReply reply;
    if (recv(socket, &reply, sizeof(reply), 0) != static_cast<ssize_t>(sizeof(reply))) {
      return Lose(LastWords());
    }
    if (!reply.is_good) return Lose(std::string(TextOf(reply.error)));
    if (taken != nullptr) *taken = reply;
    return {};
  }
}

Status WorkerProcess::Launch(const LaunchMessage& launch) {
  if (is_lost_ || !Say(launches_.get(), launch)) return Lose(LastWords());
  return {};
}

Status WorkerProcess::AwaitLaunch() { return AwaitReply(launches_.get(), limits_.reply_seconds); }

Status WorkerProcess::Write(const WriteMessage& write) {
  if (is_lost_ || !Say(writes_.get(), write)) return Lose(LastWords());
  return AwaitReply(writes_.get(), limits_.reply_seconds);
}

// Keeps the first reason, from which later errors follow.
std::unexpected<Error> WorkerProcess::Lose(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!is_lost_.exchange(true)) {
    reason_ = why;
    if (process_ > 0) kill(process_, SIGKILL);
  }
  return moestro::Fail(Errc::kDevice, "the remote host {}: {}", host_, reason_);
}

// The last line of the worker's stderr that is not a debugger's.
std::string WorkerProcess::LastWords() {
  // The worker has written its last line before its end shows on the socket.
  std::string text(size_t{64} * kKiB, '\0');
  const ssize_t got = read(errors_.get(), text.data(), text.size());
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  std::string last;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    if (line.size() > 3 && !line.starts_with("[") && !line.starts_with("#")) last = line;
    at = end + 1;
  }
  // ggml's message begins with the place in its sources; only the words behind help a user.
  constexpr std::string_view kSource = ".cpp:";
  if (const size_t source = last.find(kSource); source != std::string::npos) {
    const size_t words = last.find(": ", source + kSource.size());
    if (words != std::string::npos) last.erase(0, words + 2);
  }
  return last.empty() ? "its connection ended" : Printable(last, 300);
}

}  // namespace moestro
