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
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/layer_plan.h"
#include "devices/transport.h"
#include "engine/engine_options.h"
#include "remote/remote_upload.h"
#include "remote/worker_process.h"

namespace moestro {

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
