// SPDX-License-Identifier: MIT
// Launches experts on a remote host, through its worker's process. Rows go there and results come
// back; weights go there once.
//
// Thread rule: Launcher's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/layer_plan.h"
#include "forward/experts/launcher.h"
#include "remote/worker_process.h"

namespace moestro {

class RemoteLauncher final : public Launcher {
 public:
  // forms: of the slots there. `worker` must outlive this, or the next Take().
  RemoteLauncher(WorkerProcess& worker, std::span<const CopyForm> forms, const LaunchShape& shape);

  // The host is back, with another worker. REQUIRES: between two layers.
  void Take(WorkerProcess& worker);

  const DeviceInfo& info() const override { return info_; }
  const LaunchShape& shape() const override { return shape_; }
  void Begin(const LayerPlan& plan, const float* ffn_in, float* results) override;
  Status Launch(uint32_t form, std::span<const Pair> pairs) override;
  Status Finish() override;
  void Abandon() override;
  uint64_t BytesOf(uint32_t form, Matrix matrix) const override;
  Status Write(const Target& to, std::span<const std::byte> bytes) override;
  // kUnsupported: the disk has every expert.
  Status Read(const Target& from, std::span<std::byte> bytes) const override;

 private:
  struct Flight {
    uint32_t number = 0;
    std::vector<uint32_t> pairs = {};
  };
  Status CollectOldest();

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
};

}  // namespace moestro
