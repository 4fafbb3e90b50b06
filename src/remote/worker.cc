// SPDX-License-Identifier: MIT
#include "remote/worker.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/input_file.h"
#include "base/number.h"
#include "base/result.h"
#include "base/system_limits.h"
#include "base/terminal.h"
#include "base/text.h"
#include "compute/backends.h"
#include "compute/devices.h"
#include "core/layer_plan.h"
#include "devices/device_pools.h"
#include "devices/local_transport.h"

namespace moestro {

Result<SharedRegion> SharedRegion::Create(uint64_t bytes) {
  UniqueFd fd(memfd_create("moestro", MFD_CLOEXEC));
  if (fd.get() < 0 || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return Fail(Errc::kIo, "no memory can be shared with another process: {}",
                std::strerror(errno));
  }
  return Map(std::move(fd), bytes);
}

Result<SharedRegion> SharedRegion::Map(UniqueFd fd, uint64_t bytes) {
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0 || static_cast<uint64_t>(info.st_size) < bytes) {
    return Fail(Errc::kIo, "the memory shared with another process is too small");
  }
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) {
    return Fail(Errc::kNoMemory, "there is no memory of {} to share with another process",
                FormatBytes(bytes));
  }
  SharedRegion region;
  region.fd_ = std::move(fd);
  region.data_ = static_cast<std::byte*>(at);
  region.bytes_ = bytes;
  return region;
}

SharedRegion::~SharedRegion() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

namespace {

// Left alone where the user names no size.
constexpr uint64_t kLeastRemoteMargin = 256 * kMiB;

// False: the engine's process is gone.
template <class Message>
bool Receive(int socket, Message& message) {
  return recv(socket, &message, sizeof(message), 0) == static_cast<ssize_t>(sizeof(message));
}

bool Answer(int socket, WorkerReply reply, const Status& status) {
  reply.is_good = status.has_value();
  if (!status) {
    const std::string& text = status.error().message;
    std::memcpy(reply.error.data(), text.data(), std::min(text.size(), reply.error.size() - 1));
  }
  return send(socket, &reply, sizeof(reply), MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(reply));
}

class RemoteWorker {
 public:
  // Replies twice: once the host is reached, and once the slots are allocated. nullptr: the host is
  // of no use, and a reply has given the reason.
  static std::unique_ptr<RemoteWorker> Start(const WorkerSetup& setup);

  void Serve();

 private:
  RemoteWorker(const WorkerSetup& setup, SharedRegion region)
      : setup_(setup), layout_(setup.shape), region_(std::move(region)) {}
  Status Reach();
  Status TakeSlots(WorkerReply& reply);
  Status Launch(const LaunchMessage& asked);
  std::vector<std::vector<Transport::Pair>> RoundsOf(std::span<const Transport::Pair> pairs) const;
  Status Write(const WriteMessage& asked);

  WorkerSetup setup_;
  WorkerLayout layout_;
  SharedRegion region_;
  std::optional<ComputeDevice> device_;
  std::unique_ptr<DeviceLink> link_;
  std::vector<uint64_t> slots_;
  std::unique_ptr<LocalTransport> transport_;
};

Status RemoteWorker::Reach() {
  TRY(const std::string name, AddRemoteDevice(setup_.endpoint.data()));
  TRY(device_, ComputeDevice::Open({.name = name,
                                    .description = setup_.endpoint.data(),
                                    .backend = "RPC",
                                    .kind = DeviceKind::kRemote}));
  link_ = std::make_unique<DeviceLink>(*device_);
  for (uint32_t f = 0; f < setup_.n_forms; ++f) {
    if (!LocalTransport::Supports(*device_, setup_.forms[f], setup_.shape)) {
      return Fail(Errc::kUnsupported, "it does not compute such experts");
    }
  }
  return {};
}

Status RemoteWorker::TakeSlots(WorkerReply& reply) {
  TRY(reply.memory_free, device_->FreeMemory());
  const uint64_t margin = std::max(kLeastRemoteMargin, reply.memory_free / 20);
  const uint64_t usual = reply.memory_free - std::min(reply.memory_free, margin);
  if (setup_.bytes > reply.memory_free) {
    return Fail(Errc::kNoMemory, "{} are more than the {} that are free there",
                FormatBytes(setup_.bytes), FormatBytes(reply.memory_free));
  }
  const uint64_t bytes = setup_.bytes > 0 ? setup_.bytes : usual;
  const uint64_t work = LocalTransport::WorkBytes(setup_.shape);
  const auto forms = std::span(setup_.forms).first(setup_.n_forms);
  const std::vector<DevicePools::Size> sizes =
      DevicePools::Divide(*device_, bytes - std::min(bytes, work), forms, setup_.experts);
  for (const DevicePools::Size& size : sizes) slots_.push_back(size.slots);
  if (std::ranges::none_of(slots_, [](uint64_t n) { return n > 0; })) {
    return Fail(Errc::kNoMemory, "{} there hold no expert beside the {} that computing them takes",
                FormatBytes(bytes), FormatBytes(work));
  }
  TRY(DevicePools pools, DevicePools::Allocate(*device_, forms, sizes));
  transport_ = std::make_unique<LocalTransport>(
      *link_, forms, LocalTransport::Weights{.pools = std::move(pools)}, setup_.shape);
  TRY_STATUS(device_->Finish());  // waits until all requests to the host are done
  std::ranges::copy(slots_, reply.slots.begin());
  reply.resident = ResidentMemory();
  return {};
}

std::unique_ptr<RemoteWorker> RemoteWorker::Start(const WorkerSetup& setup) {
  Result<SharedRegion> region =
      SharedRegion::Map(UniqueFd(kWorkerMemory), WorkerLayout(setup.shape).all());
  if (!region) {
    Answer(kWorkerLaunches, {}, std::unexpected(region.error()));
    return nullptr;
  }
  std::unique_ptr<RemoteWorker> worker(new RemoteWorker(setup, *std::move(region)));
  const Status reached = worker->Reach();
  if (!Answer(kWorkerLaunches, {}, reached) || !reached) return nullptr;
  WorkerReply reply;
  const Status taken = worker->TakeSlots(reply);
  return Answer(kWorkerLaunches, reply, taken) && taken ? std::move(worker) : nullptr;
}

// Stage: x [pairs][n_embd], or [1][n_embd], and slots [pairs] -> y [pairs][n_embd], all in the
// flight's place.
Status RemoteWorker::Launch(const LaunchMessage& asked) {
  const bool is_good = asked.flight < kWorkerFlights && asked.form < setup_.n_forms &&
                       asked.n_pairs > 0 && asked.n_pairs <= kWorkerPairs;
  if (!is_good) return Fail(Errc::kInvalidRequest, "a launch that makes no sense");
  std::array<int32_t, kWorkerPairs> slots{};
  std::memcpy(slots.data(), region_.data() + layout_.slots(asked.flight),
              asked.n_pairs * sizeof(int32_t));
  std::vector<Transport::Pair> pairs;
  for (uint32_t i = 0; i < asked.n_pairs; ++i) {
    const auto slot = static_cast<uint32_t>(slots[i]);
    if (slot >= slots_[asked.form]) return Fail(Errc::kInvalidRequest, "no slot {} there", slot);
    pairs.push_back({.pair = i, .row = asked.is_one_row ? 0 : i, .slot = SlotId{slot}});
  }
  const LayerPlan plan{.n_rows = asked.is_one_row ? 1 : asked.n_pairs};
  transport_->Begin(plan, reinterpret_cast<float*>(region_.data() + layout_.x(asked.flight)),
                    reinterpret_cast<float*>(region_.data() + layout_.y(asked.flight)));
  for (const std::vector<Transport::Pair>& round : RoundsOf(pairs)) {
    TRY_STATUS(transport_->Launch(asked.form, round));
  }
  return transport_->Finish();
}

// Splits the pairs of an exact launch into rounds with few rows of each expert. For many rows of an
// expert ggml has other kernels than for one, whose sums are rounded otherwise (Q4_K from 5 to 9
// rows on).
std::vector<std::vector<Transport::Pair>> RemoteWorker::RoundsOf(
    std::span<const Transport::Pair> pairs) const {
  constexpr uint32_t kMostRows = 4;
  std::vector<std::vector<Transport::Pair>> rounds(1);
  if (!setup_.shape.is_exact) {
    rounds[0].assign(pairs.begin(), pairs.end());
    return rounds;
  }
  std::unordered_map<uint64_t, uint32_t> rows;  // rows of each slot in the current round
  for (const Transport::Pair& pair : pairs) {
    const uint32_t round = rows[pair.slot.value]++ / kMostRows;
    if (round == rounds.size()) rounds.emplace_back();
    rounds[round].push_back(pair);
  }
  return rounds;
}

Status RemoteWorker::Write(const WriteMessage& asked) {
  const uint64_t one =
      asked.form < setup_.n_forms ? transport_->BytesOf(asked.form, asked.matrix) : 0;
  const bool is_good = one > 0 && asked.bytes <= kUploadBytes && asked.offset < one &&
                       asked.slot * one + asked.offset + asked.bytes <= slots_[asked.form] * one;
  if (!is_good) return Fail(Errc::kInvalidRequest, "a copy that makes no sense");
  return transport_->Write({.form = asked.form,
                            .matrix = asked.matrix,
                            .slot = SlotId{asked.slot},
                            .offset = asked.offset},
                           std::span(region_.data(), asked.bytes));
}

// Serves launches before writes, since a step waits for launches.
void RemoteWorker::Serve() {
  while (true) {
    std::array<pollfd, 2> sockets{pollfd{.fd = kWorkerLaunches, .events = POLLIN, .revents = 0},
                                  pollfd{.fd = kWorkerWrites, .events = POLLIN, .revents = 0}};
    if (poll(sockets.data(), sockets.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (sockets[0].revents != 0) {
      LaunchMessage asked;
      if (!Receive(kWorkerLaunches, asked)) return;
      if (!Answer(kWorkerLaunches, {}, Launch(asked))) return;
    } else {
      WriteMessage asked;
      if (!Receive(kWorkerWrites, asked)) return;
      if (!Answer(kWorkerWrites, {}, Write(asked))) return;
    }
  }
}

// Ends this process with the engine's, also while ggml's client waits for the host.
void EndWithTheEngine() {
  std::thread([] {
    pollfd engine{.fd = kWorkerLaunches, .events = 0, .revents = 0};
    while (poll(&engine, 1, -1) < 0 && errno == EINTR) {
    }
    _exit(0);
  }).detach();
}

}  // namespace

int RemoteWorkerMain() {
  signal(SIGPIPE, SIG_IGN);  // ggml's client then prints the error that ended it
  // A terminal or a service's manager sends these signals to every process; this one ends with the
  // engine's.
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_IGN);
  setenv("GGML_NO_BACKTRACE", "1", 1);
  const rlimit no_core{};
  setrlimit(RLIMIT_CORE, &no_core);
  EndWithTheEngine();
  WorkerSetup setup;
  if (!Receive(kWorkerLaunches, setup) || setup.n_forms > kMostWorkerForms) return 2;
  return Caught(
      [&] {
        const std::unique_ptr<RemoteWorker> worker = RemoteWorker::Start(setup);
        if (worker) worker->Serve();
        return worker ? 0 : 1;
      },
      [](std::string_view why) {
        PrintOnStderr(Format("{}\n", why));
        return 1;
      });
}

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
  UniqueFd their_errors(errors[1]);
  TRY_STATUS(Spawn(program, launches.theirs.get(), writes.theirs.get(), their_errors.get()));
  // Only the worker holds these ends from now on, so that the worker's end is seen at once.
  launches.theirs = UniqueFd();
  writes.theirs = UniqueFd();
  their_errors = UniqueFd();
  launches_ = std::move(launches.ours);
  writes_ = std::move(writes.ours);
  if (!Say(launches_.get(), setup)) return Lose(LastWords());
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
