// SPDX-License-Identifier: MIT
// Carries rows, results and weights between this process and a device's slots for experts: to a
// device of this machine (local_transport.h), or through a process to another machine
// (remote/remote_transport.h). device.h decides what is launched and when.
//
// Thread rule: the engine thread; BeginWrite() and AwaitWrite() come from a copier's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "core/machine.h"
#include "core/model_spec.h"
#include "decide/devices/device_tier.h"
#include "devices/step_buffers.h"

namespace moestro {

struct LaunchShape {
  uint32_t n_embd = 0;
  uint32_t n_ff = 0;  // the largest of any form
  Activation activation = Activation::kSwiglu;
  uint32_t most_pairs = 512;  // pairs of a launch, at most
  uint32_t n_used = 0;        // K
  bool has_shared = false;    // the model has a shared expert
  bool adds_residual = true;  // false: the next graph adds the residual
  bool has_limits = false;    // FeedForwardSpec::limit_expert of some layer: no device applies them
  uint64_t bias_bytes = 0;    // biases of all experts, on the device from the start
  // The activation is computed by the same operations as the CPU's team does, one by one, so that
  // the same processor gives the same bits.
  bool is_exact = false;
};

class Transport {
 public:
  struct Pair {
    uint32_t pair;  // index of the pair's result
    uint32_t row;
    SlotId slot;
    ExpertId expert = {};  // for biases
  };
  // A matrix in a slot.
  struct Target {
    uint32_t form = 0;
    Matrix matrix{};
    SlotId slot;
    uint64_t offset = 0;  // bytes into the slot
  };

  virtual ~Transport() = default;

  virtual const DeviceInfo& info() const = 0;
  virtual const LaunchShape& shape() const = 0;

  // Begins a layer with rows in memory: ffn_in [rows][n_embd], results [pair][n_embd]. All three
  // must live until Finish() or Abandon().
  virtual void Begin(const LayerPlan& plan, const float* ffn_in, float* results) = 0;
  // Begins a layer whose rows are on the device, of which the device computes `pairs` pairs.
  // REQUIRES: the dense part is on the device.
  virtual void BeginThere(const LayerPlan& /*plan*/, const StepBuffers& /*rows*/,
                          uint32_t /*pairs*/) {
    CHECK(false);
  }
  // Returns while the device computes. REQUIRES: at most shape().most_pairs pairs. kDevice, here
  // and below.
  virtual Status Launch(uint32_t form, std::span<const Pair> pairs) = 0;
  // Ends the layer: all results are in `results` of Begin(), or after BeginThere() their sum is
  // launched: hidden [rows][n_embd] without the pairs of other processors.
  virtual Status Finish() = 0;
  // Waits until no launch is under way; results are lost.
  virtual void Abandon() = 0;

  // Pairs of the layer that has just failed whose results are NaN or infinite. The device is at
  // fault if the CPU computes numbers from the same rows.
  virtual std::span<const uint32_t> odd_pairs() const { return {}; }
  // Whether the device has given wrong results. All results since the device was last found right
  // may be wrong, too.
  virtual bool is_wrong() const { return false; }
  // Notes that the device has given wrong results. The device gets no further work.
  virtual void Distrust(const std::string& /*why*/) {}
  // Launches from one check of a result to the next.
  virtual void CheckEvery(uint32_t /*launches*/) {}
  // Compares results of the device with known ones. kDevice: some are wrong (is_wrong()), or the
  // device is lost. REQUIRES: no layer is under way.
  virtual Status CheckResults() { return {}; }

  // An expert that was on its way to a slot. is_there is false after a failure of the device or of
  // the disk.
  struct Landed {
    DeviceTier::Promotion expert;
    bool is_there = false;
  };
  // For a device whose experts stay the same, reads them from the disk and brings them while steps
  // run. kIo.
  virtual Status BeginToBring(std::span<const DeviceTier::Promotion> /*experts*/) { return {}; }
  // The experts that have landed since the last call.
  virtual std::vector<Landed> TakeLanded() { return {}; }
  // Whether experts are on their way.
  virtual bool is_bringing() const { return false; }
  // Tries to reach a lost device again, in the background. True once, when the device is back:
  // empty, and computing as before.
  virtual bool ComesBack() { return false; }

  // The bytes of a matrix in a slot; 0: experts of the form lack the matrix.
  virtual uint64_t BytesOf(uint32_t form, Matrix matrix) const = 0;
  // Write and read the bytes of a slot, and wait until they are copied. Bytes may go on into later
  // slots.
  virtual Status Write(const Target& to, std::span<const std::byte> bytes) = 0;
  virtual Status Read(const Target& from, std::span<std::byte> bytes) const = 0;
  // Begins to write the bytes of a slot, which must live until AwaitWrite(). Returns the number for
  // AwaitWrite(); 0: the bytes are copied.
  virtual Result<uint64_t> BeginWrite(const Target& to, std::span<const std::byte> bytes) {
    TRY_STATUS(Write(to, bytes));
    return 0;
  }
  // Waits until the bytes are copied, and those of earlier writes.
  virtual Status AwaitWrite(uint64_t /*number*/) { return {}; }

  // The ways in which BeginWrite() copies.
  enum class CopyWay : uint8_t {
    kBlocking,  // the driver's copy, one after another
    kRing,      // through a ring of pinned memory (copy_ring.h)
    kPinned,    // as kRing, without the ring: the bytes are in memory pinned for the device
  };
  // False: the device has no other way than kBlocking. REQUIRES: no write is under way.
  virtual bool SetCopyWay(CopyWay way) { return way == CopyWay::kBlocking; }
};

}  // namespace moestro
