// SPDX-License-Identifier: MIT
// Brings each remote host its share of every layer's experts while steps run: from the disk, layer
// by layer, in pieces as large as a server keeps on its own disk. A thread for each host.
//
// Thread rule: the engine thread calls.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/ids.h"
#include "decide/devices/device_tier.h"
#include "forward/experts/device_side.h"
#include "remote/worker_process.h"
#include "store/extent_reader.h"

namespace moestro {

// The experts of each host, [host], that have room for `room` experts each: every layer gives each
// host the same share. first: the most popular experts, of which the first `kept` stay here unless
// all others have found a place; empty: none is known. Grouped by layer, hot layers first.
std::vector<std::vector<ExpertKey>> SharesOf(const ExpertCatalog& catalog,
                                             std::span<const ExpertKey> first, uint64_t kept,
                                             std::span<const uint64_t> room);

class RemoteUpload {
 public:
  struct Host {
    WorkerProcess* worker = nullptr;
    std::vector<DeviceTier::Promotion> experts = {};  // grouped by layer
  };
  // Begins. All must outlive this. kIo.
  static Result<std::unique_ptr<RemoteUpload>> Begin(const ExpertCatalog& catalog,
                                                     const std::vector<std::string>& paths,
                                                     std::vector<Host> hosts);
  RemoteUpload(const RemoteUpload&) = delete;
  RemoteUpload& operator=(const RemoteUpload&) = delete;
  ~RemoteUpload();  // ends what is under way

  using Landed = DeviceSide::Options::Settled;  // not there: the host or the disk failed
  // Whole layers of a host, since the last call.
  std::vector<Landed> TakeLanded();
  bool is_done() const { return n_running_ == 0; }

 private:
  RemoteUpload(const ExpertCatalog& catalog, ExtentReader reader)
      : catalog_(catalog), reader_(std::move(reader)) {}
  void Run(const Host& host);
  // Experts of one layer.
  Status Bring(WorkerProcess& worker, std::span<const DeviceTier::Promotion> layer);
  Status BringMatrices(WorkerProcess& worker, Matrix matrix,
                       std::span<const DeviceTier::Promotion> layer);

  const ExpertCatalog& catalog_;
  const ExtentReader reader_;
  std::atomic<bool> ends_ = false;
  std::atomic<size_t> n_running_ = 0;
  std::mutex mutex_;
  std::vector<Landed> landed_;  // under mutex_
  std::vector<Host> hosts_;
  std::vector<std::jthread> threads_;  // last: they use the others
};

}  // namespace moestro
