// SPDX-License-Identifier: MIT
// Options of an engine: memory, disk, threads, devices, remote hosts and choices of the user.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/number.h"
#include "base/result.h"
#include "base/work_limit.h"
#include "core/kv_cells.h"
#include "core/machine.h"
#include "decide/devices/device_tier.h"
#include "decide/devices/lane_planner.h"
#include "decide/devices/latency_model.h"
#include "decide/devices/way_planner.h"
#include "decide/layer/lossy_options.h"
#include "decide/slots/policy.h"

namespace moestro {

// Machines whose memory holds experts beside this one's, as a user names them. Pure.

struct RemoteHost {
  std::string host = {};  // a name or an IPv4 address
  uint16_t port = 0;
  // Bytes that may be taken on the host; 0: the free memory there, less a margin.
  uint64_t bytes = 0;

  std::string address() const;  // "box:50052"
  bool operator==(const RemoteHost&) const = default;
};

// "HOST:PORT[=SIZE]", with commas between several; empty: none. kUsage: another form, an IPv6
// address (ggml's client takes none), a host twice, more than kMostRemoteHosts.
Result<std::vector<RemoteHost>> ParseRemoteHosts(std::string_view text);
std::string ToText(const std::vector<RemoteHost>& hosts);
inline constexpr size_t kMostRemoteHosts = 16;  // as many as ggml's client takes

// Addresses that may be reached without a flag: the machine itself and networks that no router
// passes on. ipv4: in the host's order.
bool IsLoopback(uint32_t ipv4);
bool IsPrivate(uint32_t ipv4);

// A user's options for devices beside the CPU, and the plan of each device.

// For tests: the faults of a device; empty: no fault.
struct DeviceFaults {
  // Called before each copy: on the copier's thread for a copy to the device, on the engine's
  // thread for a copy back.
  std::function<bool()> fails_copy;
  std::function<bool()> fails_launch;  // called before each launch
  // Called when layers have run whole on the device. True: its choices count as others than the
  // rule's.
  std::function<bool()> mistakes_choice = {};
  bool spoils_results = false;  // every result is a tenth too large
};

// Other machines whose memory holds experts (docs/remote.md).
struct RemoteOptions {
  std::vector<RemoteHost> hosts = {};
  // This machine multiplies experts with its own kernels, so results differ from those without
  // hosts by rounding. Else both ends use ggml's, and bits are equal.
  bool is_inexact = false;
  bool takes_public = false;  // addresses outside private networks are allowed, too
  // Hosts compute what they have, though that may be slower than this machine's disk.
  bool is_always = false;
  std::string program = "/proc/self/exe";  // the program that connects to a host

  bool is_exact() const { return !hosts.empty() && !is_inexact; }
};

struct DeviceOptions {
  // ggml's device names with commas between them, or a backend's name for its first device. "cpu":
  // no device. "auto": the GPUs of one backend that are neither software nor remote, if there are
  // any. The dense part goes to the first device. Expert slots go to all devices, to the first
  // device first.
  std::string name = "auto";
  // Bytes for expert slots, the dense part and buffers: one size for all devices, or one size for
  // each device; empty: what is free, less a margin.
  std::vector<uint64_t> vram = {};
  RemoteOptions remote = {};
  PlaceMode place = PlaceMode::kAuto;
  std::optional<Tiers> tiers = {};  // empty: TiersFor() the slots of memory
  std::string latency_model = {};   // a file of costs; empty: costs are measured
  // The dense part, keys and values stay in memory even if the first device has room for them.
  bool dense_on_cpu = false;
  // If a device that was requested by name is lost, the CPU goes on, as with "auto". Servers set
  // this.
  bool goes_on_if_lost = false;
  std::string cost_folder = {};  // folder that keeps measured costs for later starts; empty: none

  // For tests: faults; the device that has them (empty: all); "auto" takes software devices if
  // there is no GPU; memory's slots are pinned even if reads into them are slow; the device copies
  // from pinned memory even if the driver's copies are faster; false: the host chooses the experts
  // of every layer.
  DeviceFaults faults = {};
  std::string faults_of = {};
  bool auto_takes_software = false;
  bool pins_slow_memory = false;
  bool queues_slow_copies = false;
  bool runs_whole_layers = true;
};

// Bytes of a device's free memory that stay free if the user names no size.
constexpr uint64_t VramMargin(uint64_t free) {
  constexpr uint64_t kLeast = 256 * kMiB;
  constexpr uint64_t kShare = 20;
  return std::max(kLeast, free / kShare);
}

enum class CostSource : uint8_t { kMeasured, kKept, kFile };
// "measured", "kept" (from an earlier start), "file".
std::string_view NameOf(CostSource source);

// The plan of a device beside the CPU: its bytes, slots and costs.
struct DeviceBudget {
  DeviceInfo info;
  uint64_t bytes = 0;  // on the device, of everything
  uint64_t dense = 0;  // of `bytes`: dense weights; 0: the CPU computes the dense part
  uint64_t kv = 0;     // of `bytes`: keys and values
  uint64_t slots = 0;
  LatencyModel latency = {};  // costs with this device alone
  // Expected seconds of a token with the devices and without; of the first device.
  std::optional<WayPrices> ways = {};
  CostSource costs = CostSource::kMeasured;
  double difference = 0.0;   // of the self-test, a share (mean squares)
  bool from_pinned = false;  // memory's slots are pinned, by the first device
};

class BlockReader;
class Mixer;
class NumaMachine;
struct MixerParts;
struct StateSpec;

// For tests: makes mixers with a state (forward/dense/mixers/mixer.h lists their duties).
using MakeStateMixer =
    std::function<Result<std::unique_ptr<Mixer>>(const MixerParts& parts, const StateSpec& spec)>;

// --cache: expert slots alone, as bytes or as a share of all expert bytes.
struct CacheSize {
  uint64_t bytes = 0;
  double percent = 0.0;  // used when bytes == 0
};
Result<CacheSize> ParseCacheSize(const std::string& text);  // "2G", "25%"; kUsage otherwise

// The flag --threads resolved: 0 becomes the physical cores.
uint32_t ResolveThreads(uint32_t threads);
// Threads that compute, on so many cores, beside a GPU's driver, which polls with a thread of its
// own. Few cores all compute.
constexpr uint32_t ThreadsBesideDriver(uint32_t cores) {
  constexpr uint32_t kFew = 3;
  return cores > kFew ? cores - 1 : cores;
}

// Division of the budget. Sizes in bytes.
struct MemoryPlan {
  uint64_t budget = 0;  // the requested budget, or the one found
  uint64_t dense = 0;   // resident weights
  uint64_t kv = 0;
  KvType kv_type = KvType::kF16;  // in memory and on a device
  uint64_t work = 0;              // graph and activation buffers
  uint64_t staging = 0;           // while weights are read, in place of work and slots
  uint64_t process = 0;           // code, libraries, vocabulary, heap, page tables, margin
  uint64_t usual_process = 0;     // the process's part of the smallest budget, without page tables
  uint64_t slots = 0;             // expert slots
  // The value of --cache that gives the same slots and so the same text; 0: the text does not
  // depend on slots.
  uint64_t repeating_cache = 0;
  uint64_t all_experts = 0;                // bytes of all experts
  uint64_t n_slots = 0;                    // for the model's own copies
  uint64_t n_low_slots = 0;                // for low copies
  uint64_t n_experts = 0;                  // of all layers
  uint64_t smallest = 0;                   // the smallest budget that works
  std::vector<DeviceBudget> devices = {};  // devices beside the CPU, in order
  Tiers tiers = Tiers::kInclusive;         // of memory and these devices
};

// Keeps the experts that decode used for the next start, which reads them before the first request.
// Never used where the text depends on the experts in memory.
struct RecallOptions {
  std::string folder = {};  // empty: nothing is kept or read
  bool is_cold = false;     // true: nothing is kept or read
  bool keeps = true;        // false: the kept uses stay unchanged
  // Bytes of recalled experts that are read at a time: a disk reads so much while the next part of
  // memory becomes resident, and neither a start nor a step waits long for it.
  uint64_t bytes_at_a_time = 32 * kMiB;
  bool is_on() const { return !folder.empty() && !is_cold; }
};

inline constexpr uint32_t kConfigCapacity = UINT32_MAX;

struct EngineOptions {
  std::string engine = "auto";  // auto, native, hosted; load/open_engine.h
  uint64_t ram_bytes = 0;       // peak of the whole process; 0: what is free, less a margin
  bool takes_smallest = false;  // the budget is the smallest that works, for plans
  // part of ram_bytes: bytes that the caller takes beside the engine
  uint64_t caller_bytes = 0;
  std::optional<CacheSize> cache = {};  // fixes the expert slots; then ram_bytes is only a check
  uint32_t threads = 0;                 // 0: physical cores
  std::string numa = "auto";            // auto, off; native/plan/numa_plan.h
  uint32_t ctx = 4096;                  // capped at the model's training context
  KvType kv_type = KvType::kF16;        // of keys and values
  uint32_t chunk = 0;  // most tokens per prefill chunk; 0: native/plan/engine_plan.h
  // Rows of a source that an expert computes, of a model with an encoder; 0: any number;
  // kConfigCapacity: the number in the model's config.
  uint32_t capacity = 0;
  std::string reader = "auto";  // auto, uring, pread
  uint32_t io_depth = 0;        // reads at a time; 0: measured, engine/plan/io_depth.h
  // Policy that chooses the expert to leave a slot; nullopt: the policy that tunings.h finds
  // for this model and number of slots.
  std::optional<PolicyChoice> policy = {};
  std::string policy_file = {};  // a tuning to follow; read only without `policy`
  // predicts the experts of later layers, see KnownPredictors()
  std::string predictor = "next-router";
  std::string paths = {};   // of the predictor "paths"; empty: MODEL.paths
  uint32_t prefetch = 1;    // layers looked ahead; 0: no prefetch
  bool predicts = false;    // the file's layer that predicts further tokens is loaded
  bool own_kernels = true;  // false: ggml's vec_dot for experts (comparison)
  // Cheaper misses; the defaults change nothing.
  std::string low = {};       // GGUF with copies of the experts in a lower type; empty: none
  double low_share = 0.25;    // of the slots' memory, for low copies
  LossyOptions lossy = {};    // experts that may be left out or coarsened
  std::string norms = {};     // of the importance "score-norm"; empty: MODEL.norms
  LittleOptions little = {};  // decode steps with fewer experts first
  // For a lossy engine. One of every check_every decode steps with one row and logits is also
  // evaluated exactly, for the observer of NativeEngine::SetCheckObserver(). This takes slots for
  // one layer. 0: no step is checked.
  uint32_t check_every = 0;
  uint32_t sequences = 1;  // sequences of ctx tokens that fit in the KV cache
  // Positions that all sequences share because they are forks. The KV cache has room for them once.
  uint32_t common_positions = 0;
  // Positions of all sequences together that fit in the KV cache, at least ctx; 0: from `ctx`,
  // `sequences` and `common_positions`.
  uint32_t positions = 0;
  DeviceOptions device = {};  // devices beside the CPU
  bool repack = true;         // dense weights in the layouts that multiply fastest
  // ggml may multiply matrices in a faster way, in which a row's result depends on the number of
  // rows (docs/decisions/0007).
  bool fast_batches = false;
  // The folder that keeps the weights' numbers (native/find_weights.h); empty: they are not kept.
  std::string weights_folder = {};
  RecallOptions recall = {};

  // Called with the plan of the budget before any weight is read; may be empty.
  std::function<void(const MemoryPlan&)> planned = {};

  // Whether every expert that a router chooses is computed as the model has it.
  bool has_exact_experts() const { return lossy.is_exact(!low.empty()) && !little.is_on(); }
  // Whether the output is the model's own.
  bool is_exact() const { return has_exact_experts() && kv_type == KvType::kF16; }

  // The only facts of the machine that the text depends on are the number of expert slots and the
  // kernels.
  bool chooses_by_slots() const {
    const bool chooses =
        !lossy.is_exact(!low.empty()) || (little.is_on() && little.misses != Misses::kRead);
    return chooses && lossy.is_reproducible;
  }
  // Slots then follow from ram_bytes alone.
  bool has_fixed_reserves() const { return chooses_by_slots() && ram_bytes > 0 && !cache; }

  // For tests. Puts a faulty disk between the engine and its files; empty: none.
  std::function<std::unique_ptr<BlockReader>(std::unique_ptr<BlockReader>)> wrap_reader = {};
  // Lists the memory nodes and moves threads and pages; null: the kernel does.
  std::shared_ptr<NumaMachine> numa_machine = {};
  // For models whose layers have states; empty: no such layer can be computed.
  MakeStateMixer make_state_mixer = {};
  // Called whenever StopSignal is checked; true: a stop is requested at that moment. May be empty.
  StopSignal::AtLook at_look = {};
  // The clock by which prefetch measures the cost of steps.
  Clock clock = SteadySeconds;
};

}  // namespace moestro
