// SPDX-License-Identifier: MIT
// The remote hosts of an engine while it runs. Brings hosts their experts, and tries again to reach
// a lost host, after waits that double. A host that has given wrong results stays left out.
//
// Thread rule: the engine thread; reaching a host and bringing experts have threads of their own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "decide/devices/device_tier.h"
#include "native/opened_model.h"
#include "native/remote_upload.h"
#include "remote/remote_launcher.h"
#include "remote/worker_process.h"

namespace moestro {

class RemoteSide {
 public:
  struct Host {
    uint32_t device = 0;                               // number of the host in plans
    std::unique_ptr<WorkerProcess>* worker = nullptr;  // replaced when the host comes back
    RemoteLauncher* launcher = nullptr;
    std::vector<ExpertKey> share = {};  // grouped by layer
    // Starts another worker; takes seconds. Any thread.
    std::function<Result<std::unique_ptr<WorkerProcess>>()> reach = {};
  };
  // Begins to bring every host its share. All must outlive this. kIo.
  static Result<std::unique_ptr<RemoteSide>> Begin(const OpenedModel& opened, DeviceTier& tier,
                                                   std::vector<Host> hosts);
  RemoteSide(const RemoteSide&) = delete;
  RemoteSide& operator=(const RemoteSide&) = delete;
  ~RemoteSide();

  // Returns the experts that hosts have got since the last call. Call between steps.
  std::vector<RemoteUpload::Landed> BeginStep();
  // Nothing is under way to any host.
  bool is_done() const;

 private:
  // Tries to reach a host until it answers.
  class Return {
   public:
    explicit Return(const Host& host);
    // Null: the host has not answered yet.
    std::unique_ptr<WorkerProcess> Take();

   private:
    std::atomic<bool> is_there_ = false;
    std::unique_ptr<WorkerProcess> worker_;  // complete once is_there_
    std::jthread thread_;
  };
  struct Running {
    Host host;
    std::unique_ptr<RemoteUpload> upload = {};
    std::unique_ptr<Return> comes_back = {};  // null: the host is not lost
  };

  RemoteSide(const OpenedModel& opened, DeviceTier& tier) : opened_(opened), tier_(tier) {}
  Status Bring(Running& to);
  void LookAfter(Running& one);

  const OpenedModel& opened_;
  DeviceTier& tier_;
  std::vector<Running> hosts_;
};

}  // namespace moestro
