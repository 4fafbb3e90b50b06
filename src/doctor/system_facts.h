// SPDX-License-Identifier: MIT
// Facts about a machine, this process's limits and a model's place: plain values that Diagnose()
// judges. Facts that could not be read are empty and lead to no finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/machine.h"

namespace moestro {

enum class RingState : uint8_t { kWorks, kForbidden, kMissing, kFails };

struct RingFacts {
  RingState state = RingState::kWorks;
  std::string error = {};                // errno's text; empty: no error
  std::optional<int> switched_off = {};  // the kernel's io_uring_disabled: 0, 1, 2
};

struct ProcessorFacts {
  uint32_t online = 0;                                     // CPUs of the machine; 0: not known
  uint32_t allowed = 0;                                    // on which this process may run
  double quota = std::numeric_limits<double>::infinity();  // processors' worth of time
  std::string governor = {};                               // governor of the first CPU that has one
  std::string governor_driver = {};                        // "intel_pstate"
  std::string energy_preference = {};                      // "balance_power"
  bool has_avx2 = false;
  uint32_t fast = 0;  // of the allowed CPUs, where others are much slower (FastCpus()); else 0
  std::vector<std::string> slowed_by = {};  // "cpufreq-cpu0": what cools by a lower clock now
  std::optional<double> hottest = {};       // degrees below the limit at which the clock falls
  bool has_low_voltage = false;             // a board's power supply is too weak
};

struct MemoryFacts {
  uint64_t machine = 0;  // bytes; 0: not known
  uint64_t machine_free = 0;
  uint64_t here_free = 0;  // within all cgroups
  // Bytes until a cgroup slows its processes down (memory.high); largest value: never.
  uint64_t until_slowed = std::numeric_limits<uint64_t>::max();
  uint64_t swap_total = 0;
  uint64_t swap_free = 0;
  uint64_t reserved_free = 0;             // bytes of reserved huge pages that are not in use
  std::string transparent_pages = {};     // "always", "madvise", "never"
  std::optional<uint64_t> lockable = {};  // bytes; largest value: no limit
  // Bytes that the kernel still promises where it promises no more than it has
  // (vm.overcommit_memory=2); nullopt: it promises more.
  std::optional<uint64_t> promised = {};
  std::vector<std::string> swaps = {};  // names of the files and disks of swap: "/dev/zram0"
};

struct SandboxFacts {
  std::string container = {};  // "docker"; empty: none is known
  bool has_filter = false;     // seccomp
  bool is_root = false;
};

struct CpuVariantFacts {
  std::string name = {};  // "haswell"
  int score = 0;          // 0: not for this machine
};

struct LibraryFacts {
  std::string name = {};     // "ggml"
  std::string built = {};    // the version at build time
  std::string running = {};  // empty: not known
};

struct GgmlFacts {
  std::vector<LibraryFacts> libraries = {};
  std::string plug_in_folder = {};
  std::vector<CpuVariantFacts> variants = {};
  bool has_cpu = true;  // some CPU backend is loaded
};

// A node below /dev that a GPU's driver offers.
struct DeviceNodeFacts {
  std::string path = {};
  bool is_usable = true;  // this process may read and write it
  std::string group = {};
};

// A GPU on the PCI bus with a driver of the kernel's.
struct CardFacts {
  std::string address = {};                 // "0000:01:00.0"
  bool is_nvidia = false;                   // files of its driver have no memory and no clocks
  uint64_t memory = 0;                      // bytes of its own; 0: not known, or none
  uint64_t visible = 0;                     // bytes of them that the CPU reaches; 0: not known
  std::vector<std::string> slowed_by = {};  // "thermal": what keeps the clock down now
  std::string level = {};                   // amdgpu's performance level: "auto"
  std::optional<double> hottest = {};       // degrees below the limit at which the clock falls
  uint64_t power_limit = 0;                 // microwatts; 0: not known
  uint64_t usual_power = 0;                 // the maker's own limit
};

struct GraphicsFacts {
  std::vector<DeviceInfo> devices = {};  // devices that ggml found, the CPU included
  std::vector<DeviceNodeFacts> nodes = {};
  std::vector<std::string> driverless = {};  // PCI addresses of GPUs without a driver
  std::vector<CardFacts> cards = {};
  uint32_t vulkan_drivers = 0;     // manifests
  bool has_nvidia_driver = false;  // NVIDIA's own module of the kernel
  bool has_nvidia_vulkan = false;  // its manifest for Vulkan
  bool has_vulkan_plug_in = false;
};

// User whose access to files is judged.
struct UserFacts {
  std::string name = {};
  uint32_t id = 0;
  std::vector<uint32_t> groups = {};
  bool is_known = true;  // false: judged as a user without groups
};

struct AccessEntry {
  uint32_t id = 0;
  uint8_t bits = 0;  // 4 read, 2 write, 1 search or execute
};

// Access control beyond the nine bits (POSIX ACLs).
struct AccessList {
  std::vector<AccessEntry> users = {};
  std::vector<AccessEntry> groups = {};
  uint8_t owning_group = 0;
  uint8_t mask = 7;
};

// One part of the way to a file.
struct PathStep {
  std::string path = {};
  uint32_t owner = 0;
  uint32_t group = 0;
  uint32_t mode = 0;  // the last nine bits
  std::optional<AccessList> list = {};
  bool is_folder = true;
  bool is_target = false;  // the requested file or folder; other steps need only be passed
  // A link in the folder that was named leads out of it, to where its writer may have chosen.
  bool is_foreign = false;
};

enum class DirectReads : uint8_t { kUnknown, kTaken, kRefused };

struct DiskFacts {
  std::string name = {};  // "nvme0n1"; empty: not known
  std::optional<bool> is_rotational = {};
  std::string card = {};         // "SD", "MMC" (soldered eMMC); empty: no such memory
  std::optional<double> rate{};  // bytes per second of direct reads; nullopt: not measured
};

struct ModelFacts {
  std::string path = {};
  std::string error = {};  // why the model cannot be opened; empty: it can be, or was not tried
  DirectReads direct = DirectReads::kUnknown;
  // Models in the folder; nullopt: `path` is a file, or its list is closed.
  std::optional<size_t> models = {};
  std::string file_system = {};  // "ext4"; empty: not known
  std::string mount = {};        // where it is mounted
  std::string mount_options = {};
  DiskFacts disk = {};
  std::vector<PathStep> steps = {};  // from "/" on, then the files
  UserFacts user = {};
};

struct FolderFacts {
  std::string purpose = {};                // "what is kept between starts"
  std::string path = {};                   // empty: the folder has no place
  std::optional<uint64_t> available = {};  // bytes
  bool is_writable = true;
  uint64_t wanted = 0;  // free bytes below which the disk is too full
};

struct SystemFacts {
  RingFacts ring = {};
  ProcessorFacts processor = {};
  MemoryFacts memory = {};
  SandboxFacts sandbox = {};
  NumaTopology numa = {};
  std::map<std::string, std::string> environment = {};  // of the variables that matter
  GgmlFacts ggml = {};
  GraphicsFacts graphics = {};
  std::vector<FolderFacts> folders = {};
  std::optional<ModelFacts> model = {};
};

}  // namespace moestro
