// SPDX-License-Identifier: MIT
// Launches experts on a remote host, through its worker's process. Rows go to the host and results
// come back; weights go to the host once. A lost host is reached again, after waits that double; a
// host that has given wrong results is not.
//
// Thread rule: Transport's; reaching a host and bringing experts have threads of their own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "compute/expert_kernel.h"
#include "compute/host_memory.h"
#include "core/expert_catalog.h"
#include "core/layer_plan.h"
#include "core/run_identity.h"
#include "decide/devices/device_tier.h"
#include "devices/transport.h"
#include "engine/engine_options.h"
#include "remote/worker.h"
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

// Brings a remote host its share of every layer's experts while steps run: from the disk, layer by
// layer, in pieces as large as a server keeps on its own disk.
//
// Thread rule: the engine thread calls; a thread of its own reads and sends.
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

// In every `check_every`th launch the known row rides along with an expert that was used since its
// last check, one after the other. A result with other bits, or one that is no number, ends the
// layer; other bits prove that the host is wrong.
class RemoteTransport final : public Transport {
 public:
  // The shape of launches on a remote host for launches of `here`.
  static LaunchShape ShapeOf(const LaunchShape& here, bool is_exact);
  // Bytes in this machine's memory for each host: the worker's process, the memory shared with the
  // worker, a matrix on its way, and known results.
  static uint64_t BytesHere(const RemoteModel& model);

  // Reaches a host, which takes memory for slots. The options must outlive this. kUsage: an address
  // that may not be used; kDevice, kIo.
  static Result<std::unique_ptr<RemoteTransport>> Open(const RemoteHost& host,
                                                       const RemoteOptions& options,
                                                       const RemoteModel& model);
  ~RemoteTransport() override;

  // [form]
  std::span<const uint64_t> slots() const { return slots_; }

  const DeviceInfo& info() const override { return info_; }
  const LaunchShape& shape() const override { return shape_; }
  void Begin(const LayerPlan& plan, const float* ffn_in, float* results) override;
  Status Launch(uint32_t form, std::span<const Pair> pairs) override;
  Status Finish() override;
  void Abandon() override;
  std::span<const uint32_t> odd_pairs() const override { return odd_pairs_; }
  bool is_wrong() const override { return is_wrong_; }
  void Distrust(const std::string& why) override;
  void CheckEvery(uint32_t launches) override { check_every_ = launches; }
  // Checks all experts that were used since their last check.
  Status CheckResults() override;
  Status BeginToBring(std::span<const DeviceTier::Promotion> experts) override;
  // All experts at once, when the last has landed.
  std::vector<Landed> TakeLanded() override;
  bool is_bringing() const override { return upload_ != nullptr && !upload_->is_done(); }
  bool ComesBack() override;
  uint64_t BytesOf(uint32_t form, Matrix matrix) const override;
  Status Write(const Target& to, std::span<const std::byte> bytes) override;
  // kUnsupported: the disk has every expert.
  Status Read(const Target& from, std::span<std::byte> bytes) const override;

 private:
  // Tries to reach the host until it answers.
  class Return {
   public:
    explicit Return(const RemoteTransport& host);
    // Null: the host has not answered yet.
    std::unique_ptr<WorkerProcess> Take();

   private:
    std::atomic<bool> is_there_ = false;
    std::unique_ptr<WorkerProcess> worker_;  // complete once is_there_
    std::jthread thread_;
  };
  struct Flight {
    uint32_t number = 0;
    std::vector<uint32_t> pairs = {};
    std::vector<size_t> checked = {};  // of known_; empty: a layer's pairs
  };
  struct Known {
    KnownResult result;
    bool is_used = false;  // since the last check
  };
  RemoteTransport(const RemoteHost& host, const RemoteOptions& options, const RemoteModel& model,
                  std::unique_ptr<WorkerProcess> worker);
  static Result<std::unique_ptr<WorkerProcess>> Reach(const RemoteHost& host,
                                                      const RemoteOptions& options,
                                                      const RemoteModel& model);
  Result<std::unique_ptr<WorkerProcess>> ReachAgain() const;
  Result<std::vector<float>> KnownResults();
  void Know(std::span<const KnownResult> results);
  Status CollectOldest();
  Status Compare(const Flight& flight);
  void MarkUsed(uint32_t form, std::span<const Pair> pairs);
  std::optional<size_t> NextToCheck();
  Status LaunchKnown(std::vector<size_t> checked);
  static uint64_t PlaceOf(uint32_t form, SlotId slot) { return uint64_t{form} << 32U | slot.value; }

  const RemoteHost host_;
  const RemoteOptions& options_;
  const RemoteModel model_;
  LaunchShape shape_;
  std::unique_ptr<WorkerProcess> worker_;
  DeviceInfo info_;
  std::vector<uint64_t> slots_;       // [form]
  std::vector<float> first_results_;  // for known rows, when first reached; empty: not exact

  // State of the layer under way.
  const LayerPlan* plan_ = nullptr;
  const float* ffn_in_ = nullptr;
  float* results_ = nullptr;
  std::vector<Flight> flights_;  // under way, the oldest first
  uint32_t next_flight_ = 0;
  std::vector<uint32_t> odd_pairs_;

  std::vector<float> known_row_;
  std::vector<Known> known_;
  std::unordered_map<uint64_t, size_t> known_at_;  // [place]
  size_t next_known_ = 0;
  uint32_t check_every_ = 64;
  uint32_t launches_ = 0;  // since the last check
  bool is_wrong_ = false;

  std::unique_ptr<RemoteUpload> upload_;  // null: nothing has been brought
  std::unique_ptr<Return> comes_back_;    // null: the host is not lost
};

}  // namespace moestro
