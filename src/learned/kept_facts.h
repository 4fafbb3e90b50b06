// SPDX-License-Identifier: MIT
// Facts about models and devices kept from one start to the next in a folder of the user's cache
// (learned/fact_store.h; costs have files of their own). With an empty name of the folder nothing
// is kept. A fault of the folder or of a file costs the fact and is no error.
//
// Thread rule: none, calls share nothing but the file system.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/input_file.h"
#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/machine.h"
#include "core/run_identity.h"
#include "decide/devices/latency_model.h"
#include "decide/slots/slot_table.h"

namespace moestro {

// Measured costs of experts on this machine, kept from one start to the next: a latency file
// (machine_files.h) for each device and form of expert.

// Conditions of a measurement. If one of them changes, costs may change, too.
struct CostKey {
  std::string cpu = {};     // the processor's name and the number of compute threads
  std::string kernel = {};  // the kernel that multiplies
  DeviceInfo device = {};
  std::string pinned_by = {};  // the device that pins the memory of copies; empty: none
  CopyForm expert = {};

  // All members in one line.
  std::string text() const;
};

// Costs that were measured for exactly this key; nullopt: none are kept, or `folder` is empty.
std::optional<LatencyModel> KeptCosts(const std::string& folder, const CostKey& key);
// Keeps `model` in place of older costs. The disk's costs are left out, because every model may lie
// on another disk.
void KeepCosts(const std::string& folder, const CostKey& key, const LatencyModel& model);
// Deletes the kept costs of a device, for all forms.
void ForgetCosts(const std::string& folder, const DeviceInfo& device);

// The file of that key, for tests.
std::string CostFile(const std::string& folder, const CostKey& key);

// The weights' number of model files (model/weights_id.h), kept as long as the files are the same
// by device, inode, size and time of change.

// A file's stamp, and the time of its last change of any kind: a content that was replaced in place
// and given its old time of modification has another change time.
struct FileVersion {
  FileStamp stamp;
  int64_t changed_ns = 0;
  bool operator==(const FileVersion&) const = default;

  static Result<FileVersion> Of(const std::string& path);  // kIo
};

struct WeightsKey {
  std::string what = {};  // the weights that count, in words
  uint64_t header = 0;    // the header's fingerprint
  std::vector<FileVersion> files = {};
  bool operator==(const WeightsKey&) const = default;
};

// The number kept for exactly this key; nullopt: none is kept.
std::optional<uint64_t> KeptWeights(const std::string& folder, const WeightsKey& key);
// Keeps `id`, in place of the number of an older content of the same file. A file that was modified
// within the last two seconds is left out: it may change again within the same tick of its file
// system's clock.
void KeepWeights(const std::string& folder, const WeightsKey& key, uint64_t id);

// Uses of experts by decode, by the model's header. Uses are a hint for the order of the first
// reads and change no result.

// uses: [layer][expert], 0: not used. Empty: none are kept.
std::vector<uint8_t> KeptUses(const std::string& folder, const ModelId& model);
void KeepUses(const std::string& folder, const ModelId& model, std::span<const uint8_t> uses);

// Order of the experts that a start reads before a step needs them: those that decode used in an
// earlier run. Pure.

// Number of an expert's uses, as a byte whose order is that of the counts: 0 for 0, then 16 steps
// for each doubling.
uint8_t PackUses(uint32_t uses);
uint32_t UnpackUses(uint8_t packed);

// packed: [layer][expert]. The most used experts, as many as each pool has slots, in the order in
// which they lie in the files. Their counts are halved, so that present uses outweigh them.
// REQUIRES: as many bytes as the catalog has layers times `n_expert`.
std::vector<SlotTable::Used> RecallOrder(const ExpertCatalog& catalog, uint32_t n_expert,
                                         std::span<const uint64_t> slots,
                                         std::span<const uint8_t> packed);

// Speeds that `moestro plan` predicted for a model. Later runs print them beside the speed that
// they reached.

// Decoded tokens per second with a share of the experts in memory.
struct PlannedSpeed {
  double share = 0.0;  // 0 to 1
  double low = 0.0;
  double high = 0.0;

  bool operator==(const PlannedSpeed&) const = default;
};

// Speed at `share`, interpolated between the points around it, which rise by share: speeds between
// two points change as a power does. Above the last point: its speed. nullopt: `points` is empty,
// or `share` is below the first one's.
std::optional<PlannedSpeed> SpeedAt(std::span<const PlannedSpeed> points, double share);

// Keeps `points` for the model of that fingerprint and a number of compute threads, in place of
// older points.
void KeepPlan(const std::string& folder, uint64_t fingerprint, uint32_t threads,
              std::span<const PlannedSpeed> points);
// Empty: none are kept.
std::vector<PlannedSpeed> KeptPlan(const std::string& folder, uint64_t fingerprint,
                                   uint32_t threads);

// Misses of a model's last decode, for later plans of that model.

struct SeenCaching {
  double share = 0.0;    // share of the experts that memory held
  double missing = 0.0;  // share of the requested experts that memory lacked

  bool operator==(const SeenCaching&) const = default;
};

// Replaces an earlier run's values.
void KeepCaching(const std::string& folder, uint64_t fingerprint, const SeenCaching& seen);
// nullopt: none is kept.
std::optional<SeenCaching> KeptCaching(const std::string& folder, uint64_t fingerprint);

}  // namespace moestro
