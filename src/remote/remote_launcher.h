// SPDX-License-Identifier: MIT
// Launches experts on a remote host, through its worker's process. Rows go to the host and results
// come back; weights go to the host once.
//
// Thread rule: Launcher's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/layer_plan.h"
#include "forward/experts/launcher.h"
#include "remote/worker_process.h"

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

// In every `check_every`th launch the known row rides along with an expert that was used since its
// last check, one after the other. A result with other bits, or one that is no number, ends the
// layer; other bits prove that the host is wrong.
class RemoteLauncher final : public Launcher {
 public:
  // forms: the forms of the host's slots. `worker` must outlive this launcher, or the next Take().
  RemoteLauncher(WorkerProcess& worker, std::span<const CopyForm> forms, const LaunchShape& shape);

  // The host is back, with another worker. REQUIRES: between two layers.
  void Take(WorkerProcess& worker);
  // REQUIRES, here and below: between two layers, and the host computes to the same bits.
  void Know(std::span<const KnownResult> results);
  void CheckEvery(uint32_t launches) { check_every_ = launches; }

  const DeviceInfo& info() const override { return info_; }
  const LaunchShape& shape() const override { return shape_; }
  void Begin(const LayerPlan& plan, const float* ffn_in, float* results) override;
  Status Launch(uint32_t form, std::span<const Pair> pairs) override;
  Status Finish() override;
  void Abandon() override;
  std::span<const uint32_t> odd_pairs() const override { return odd_pairs_; }
  bool is_wrong() const override { return is_wrong_; }
  void Distrust(const std::string& why) override;
  // Checks all experts that were used since their last check.
  Status CheckResults() override;
  uint64_t BytesOf(uint32_t form, Matrix matrix) const override;
  Status Write(const Target& to, std::span<const std::byte> bytes) override;
  // kUnsupported: the disk has every expert.
  Status Read(const Target& from, std::span<std::byte> bytes) const override;

 private:
  struct Flight {
    uint32_t number = 0;
    std::vector<uint32_t> pairs = {};
    std::vector<size_t> checked = {};  // of known_; empty: a layer's pairs
  };
  struct Known {
    KnownResult result;
    bool is_used = false;  // since the last check
  };
  Status CollectOldest();
  Status Compare(const Flight& flight);
  void MarkUsed(uint32_t form, std::span<const Pair> pairs);
  std::optional<size_t> NextToCheck();
  Status LaunchKnown(std::vector<size_t> checked);
  static uint64_t PlaceOf(uint32_t form, SlotId slot) { return uint64_t{form} << 32U | slot.value; }

  WorkerProcess* worker_;
  std::vector<CopyForm> forms_;
  LaunchShape shape_;
  DeviceInfo info_;

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
};

}  // namespace moestro
