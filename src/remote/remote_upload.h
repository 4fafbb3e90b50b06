// SPDX-License-Identifier: MIT
// Brings a remote host its share of every layer's experts while steps run: from the disk, layer by
// layer, in pieces as large as a server keeps on its own disk.
//
// Thread rule: the engine thread calls; a thread of its own reads and sends.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"
#include "compute/expert_kernel.h"
#include "compute/host_memory.h"
#include "core/expert_catalog.h"
#include "core/run_identity.h"
#include "decide/devices/device_tier.h"
#include "devices/transport.h"
#include "remote/worker_process.h"
#include "store/open_files.h"

namespace moestro {

// A row with known results: the same for every model of this width.
std::vector<float> KnownRow(uint32_t n_embd);
// Digest that is kept of a result.
uint64_t DigestOf(std::span<const float> result);

// The known row's result with the expert in a slot, as computed by this machine.
struct KnownResult {
  uint32_t form = 0;
  SlotId slot;
  uint64_t digest = 0;
};

// The model's experts, as remote hosts get them.
struct RemoteModel {
  const ExpertCatalog& catalog;
  std::vector<std::string> paths;        // files of the catalog
  std::span<const FormKernels> kernels;  // by form: for known results
  LaunchShape shape;                     // is_exact: hosts must compute to the same bits
  MoeShape moe;
};

class RemoteUpload {
 public:
  using Landed = Transport::Landed;

  // Begins the upload. experts: grouped by layer. All must outlive this. kIo.
  static Result<std::unique_ptr<RemoteUpload>> Begin(const RemoteModel& model,
                                                     WorkerProcess& worker,
                                                     std::vector<DeviceTier::Promotion> experts);
  RemoteUpload(const RemoteUpload&) = delete;
  RemoteUpload& operator=(const RemoteUpload&) = delete;
  ~RemoteUpload();  // ends the upload

  // All experts at once, when the upload has ended; empty before. A launch during the upload would
  // wait for the piece on the wire, 0.14 s at 1 Gbit/s, in each layer.
  std::vector<Landed> TakeLanded();
  // Results of the landed experts for the known row, computed here; empty where runs are not exact.
  std::vector<KnownResult> TakeKnown();
  // Bytes that an upload takes: a matrix on its way, and known results of the model's experts.
  static uint64_t BytesFor(const RemoteModel& model);
  // Whether no further expert will land.
  bool is_done() const { return is_done_; }

 private:
  RemoteUpload(const RemoteModel& model, ExtentReader reader, WorkerProcess& worker,
               std::vector<DeviceTier::Promotion> experts)
      : model_(model), reader_(std::move(reader)), worker_(worker), experts_(std::move(experts)) {}
  void Run();
  // Brings the experts of one layer.
  Status Bring(std::span<const DeviceTier::Promotion> layer);
  Status BringMatrices(Matrix matrix, std::span<const DeviceTier::Promotion> layer);
  // Products of an expert with the known row, while the expert's layer is under way.
  struct Products {
    std::vector<float> gate;
    std::vector<float> up;
  };
  void Multiply(const FormKernels& kernels, Matrix matrix, std::span<const std::byte> weights,
                Products& products);
  void Keep(const DeviceTier::Promotion& expert);

  const RemoteModel& model_;
  const ExtentReader reader_;
  WorkerProcess& worker_;
  const std::vector<DeviceTier::Promotion> experts_;
  std::atomic<bool> ends_ = false;
  std::atomic<bool> is_done_ = false;
  std::mutex mutex_;
  std::vector<Landed> landed_;      // under mutex_
  std::vector<KnownResult> known_;  // under mutex_
  std::vector<float> known_row_;    // empty: runs are not exact
  std::vector<Products> products_;  // [expert of the layer]
  std::vector<float> result_;       // result of the last down matrix
  HostMemory quantised_;
  std::jthread thread_;  // last, since the thread uses the other members
};

}  // namespace moestro
