// SPDX-License-Identifier: MIT
#include "remote/worker.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
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

}  // namespace moestro
