// SPDX-License-Identifier: MIT
#include "native/remote_side.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "base/caught.h"
#include "base/log.h"

namespace moestro {
namespace {

constexpr std::chrono::seconds kFirstWait{2};
constexpr std::chrono::seconds kLongestWait{60};

// Waits for `time`. False: the stop came first.
bool WaitOut(const std::stop_token& stop, std::chrono::seconds time) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any wakes;
  wakes.wait_for(lock, stop, time, [] { return false; });
  return !stop.stop_requested();
}

}  // namespace

RemoteSide::Return::Return(const Host& host)
    : thread_([this, reach = host.reach](const std::stop_token& stop) {
        for (std::chrono::seconds wait = kFirstWait; WaitOut(stop, wait);
             wait = std::min(2 * wait, kLongestWait)) {
          auto worker = Caught(reach, [](std::string_view why) {
            return Result<std::unique_ptr<WorkerProcess>>(Fail(Errc::kIo, "{}", why));
          });
          if (!worker) continue;
          worker_ = *std::move(worker);
          is_there_ = true;
          return;
        }
      }) {}

std::unique_ptr<WorkerProcess> RemoteSide::Return::Take() {
  return is_there_ ? std::move(worker_) : nullptr;
}

Result<std::unique_ptr<RemoteSide>> RemoteSide::Begin(const OpenedModel& opened, DeviceTier& tier,
                                                      std::vector<Host> hosts) {
  std::unique_ptr<RemoteSide> side(new RemoteSide(opened, tier));
  for (Host& host : hosts) {
    side->hosts_.push_back({.host = std::move(host)});
    TRY_STATUS(side->Bring(side->hosts_.back()));
  }
  return side;
}

RemoteSide::~RemoteSide() = default;

Status RemoteSide::Bring(Running& to) {
  TRY(to.upload,
      RemoteUpload::Begin(opened_, **to.host.worker, tier_.Settle(to.host.device, to.host.share)));
  return {};
}

std::vector<RemoteUpload::Landed> RemoteSide::BeginStep() {
  std::vector<RemoteUpload::Landed> landed;
  for (Running& one : hosts_) {
    const bool was_done = one.upload == nullptr || one.upload->is_done();
    const size_t before = landed.size();
    if (one.upload) landed.append_range(one.upload->TakeLanded());
    if (one.upload) one.host.launcher->Know(one.upload->TakeKnown());
    // A lost host is looked after once the tier has been given every landed expert.
    if (was_done && landed.size() == before) LookAfter(one);
  }
  return landed;
}

// Begins to reach a host that is lost, and uses a host that is back. Such a host has lost its
// experts, so they are brought again.
void RemoteSide::LookAfter(Running& one) {
  if (!one.comes_back) {
    if (one.host.launcher->is_wrong()) return;
    if ((*one.host.worker)->is_lost()) one.comes_back = std::make_unique<Return>(one.host);
    return;
  }
  std::unique_ptr<WorkerProcess> worker = one.comes_back->Take();
  if (!worker) return;
  one.comes_back.reset();
  one.upload.reset();
  one.host.launcher->Take(*worker);
  *one.host.worker = std::move(worker);
  tier_.ComesBack(one.host.device);
  LogInfo("the remote host {} is back", (*one.host.worker)->host());
  if (const Status brought = Bring(one); !brought) LogWarning("{}", brought.error().message);
}

bool RemoteSide::is_done() const {
  return std::ranges::all_of(
      hosts_, [](const Running& one) { return one.upload == nullptr || one.upload->is_done(); });
}

}  // namespace moestro
