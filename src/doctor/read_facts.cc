// SPDX-License-Identifier: MIT
#include "doctor/read_facts.h"

#include <grp.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/cache_files.h"
#include "base/input_file.h"
#include "base/number.h"
#include "base/output_file.h"
#include "base/system_limits.h"
#include "compute/backends.h"
#include "compute/devices.h"
#include "compute/numa_machine.h"
#include "store/open_files.h"
#include "store/uring_reader.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
// Most entries that are read of one of the system's folders; a folder with more is not a system's.
constexpr size_t kMostEntries = 4096;

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (names.size() == kMostEntries) break;
    names.push_back(entry->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

// The rest of the line that begins with `field`.
std::string LineOf(std::string_view text, std::string_view field) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (!line.starts_with(field)) continue;
    const size_t begin = std::min(line.find_first_not_of(" \t", field.size()), line.size());
    return std::string(line.substr(begin));
  }
  return "";
}

uint32_t CountOf(std::string_view list) {
  const auto numbers = ParseCpuList(list);
  return numbers ? static_cast<uint32_t>(numbers->size()) : 0;
}

std::optional<uint64_t> ParseHex(std::string_view text) {
  if (!text.starts_with("0x")) return std::nullopt;
  text.remove_prefix(2);
  uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

uint64_t NumberIn(const std::string& path) {
  const std::string word = ReadWord(path);
  return (word.starts_with("0x") ? ParseHex(word) : ParseNumber<uint64_t>(word)).value_or(0);
}

// Folders one level below `folder` whose names begin so.
std::vector<std::string> FoldersIn(const std::string& folder, std::string_view begin) {
  std::vector<std::string> found;
  for (const std::string& name : NamesIn(folder)) {
    if (name.starts_with(begin)) found.push_back(folder + "/" + name);
  }
  return found;
}

// Whether the clock is held down, or soon will be. Zones of the kernel have limits of several
// kinds: "passive" and "hot" are those at which clocks fall.
void ReadHeat(const std::string& root, ProcessorFacts& facts) {
  const std::string thermal = root + "/sys/class/thermal";
  for (const std::string& device : FoldersIn(thermal, "cooling_device")) {
    const std::string type = ReadWord(device + "/type");
    const bool is_clock =
        type.starts_with("cpufreq") || type.starts_with("thermal-cpufreq") || type == "Processor";
    if (is_clock && NumberIn(device + "/cur_state") > 0) facts.slowed_by.push_back(type);
  }
  for (const std::string& zone : FoldersIn(thermal, "thermal_zone")) {
    const uint64_t now = NumberIn(zone + "/temp");
    for (const std::string& path : FoldersIn(zone, "trip_point_")) {
      constexpr std::string_view kEnding = "_type";
      const std::string type = ReadWord(path);
      if (!path.ends_with(kEnding) || (type != "passive" && type != "hot")) continue;
      const uint64_t limit = NumberIn(path.substr(0, path.size() - kEnding.size()) + "_temp");
      if (limit == 0 || now == 0) continue;
      const double left = (static_cast<double>(limit) - static_cast<double>(now)) / 1000.0;
      facts.hottest = std::min(facts.hottest.value_or(left), left);
    }
  }
  for (const std::string& sensors : FoldersIn(root + "/sys/class/hwmon", "hwmon")) {
    const bool is_supply = ReadWord(sensors + "/name") == "rpi_volt";
    facts.has_low_voltage |= is_supply && ReadWord(sensors + "/in0_lcrit_alarm") == "1";
  }
}

ProcessorFacts ReadProcessors(const std::string& root, const std::string& allowed) {
  const std::string cpus = root + "/sys/devices/system/cpu/";
  ProcessorFacts facts{.online = CountOf(ReadSmallFile(cpus + "online").value_or("")),
                       .allowed = CountOf(allowed),
                       .quota = ProcessorQuota(root)};
  for (const std::string& name : NamesIn(cpus)) {
    const std::string folder = cpus + name + "/cpufreq/";
    if (!name.starts_with("cpu") || !facts.governor.empty()) continue;
    facts.governor = ReadWord(folder + "scaling_governor");
    facts.governor_driver = ReadWord(folder + "scaling_driver");
    facts.energy_preference = ReadWord(folder + "energy_performance_preference");
  }
  const std::string flags =
      LineOf(ReadSmallFile(root + "/proc/cpuinfo").value_or(""), "flags") + " ";
  facts.has_avx2 = flags.contains(" avx2 ");
  const auto numbers = ParseCpuList(allowed);
  if (numbers) facts.fast = static_cast<uint32_t>(FastCpus(*numbers, root).size());
  ReadHeat(root, facts);
  return facts;
}

// The word in brackets of a line such as "always [madvise] never".
std::string Chosen(std::string_view line) {
  const size_t begin = line.find('[');
  const size_t end = line.find(']');
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return "";
  return std::string(line.substr(begin + 1, end - begin - 1));
}

std::optional<uint64_t> LockableIn(const std::string& limits) {
  constexpr std::string_view kField = "Max locked memory";
  if (LineOf(limits, kField).starts_with("unlimited")) return kNoLimit;
  return FieldOf(limits, kField);
}

MemoryFacts ReadMemory(const std::string& root) {
  const std::string table = ReadSmallFile(root + "/proc/meminfo").value_or("");
  const auto kib = [&](std::string_view field) {
    const uint64_t value = FieldOf(table, field).value_or(0);
    return value > kNoLimit / kKiB ? 0 : value * kKiB;
  };
  MemoryFacts facts{.machine = kib("MemTotal:"),
                    .machine_free = kib("MemAvailable:"),
                    .here_free = AvailableMemory(root),
                    .until_slowed = MemoryUntilSlowed(root),
                    .swap_total = kib("SwapTotal:"),
                    .swap_free = kib("SwapFree:")};
  const uint64_t pages = FieldOf(table, "HugePages_Free:").value_or(0);
  const uint64_t page = kib("Hugepagesize:");
  if (page > 0 && pages <= facts.machine / page) facts.reserved_free = pages * page;
  facts.transparent_pages = Chosen(ReadWord(root + "/sys/kernel/mm/transparent_hugepage/enabled"));
  facts.lockable = LockableIn(ReadSmallFile(root + "/proc/self/limits").value_or(""));
  facts.promised = PromisedMemory(root);
  std::istringstream swaps(ReadSmallFile(root + "/proc/swaps").value_or(""));
  std::string line;
  std::getline(swaps, line);  // of titles
  while (std::getline(swaps, line))
    facts.swaps.push_back(line.substr(0, line.find_first_of(" \t")));
  return facts;
}

SandboxFacts ReadSandbox(const std::string& root, const std::string& status) {
  SandboxFacts facts{.container = ReadWord(root + "/run/systemd/container"),
                     .has_filter = FieldOf(status, "Seccomp:").value_or(0) == 2,
                     .is_root = ::geteuid() == 0};
  std::error_code ignored;
  if (facts.container.empty() && fs::exists(root + "/.dockerenv", ignored)) {
    facts.container = "docker";
  }
  if (facts.container.empty() && fs::exists(root + "/run/.containerenv", ignored)) {
    facts.container = "podman";
  }
  return facts;
}

std::string GroupName(uint32_t id) {
  group entry = {};
  group* found = nullptr;
  std::array<char, 4096> memory{};
  ::getgrgid_r(id, &entry, memory.data(), memory.size(), &found);
  return found != nullptr ? found->gr_name : "";
}

std::vector<DeviceNodeFacts> ReadNodes(const std::string& root) {
  std::vector<std::string> paths;
  for (const std::string& name : NamesIn(root + "/dev/dri")) {
    if (name.starts_with("renderD")) paths.push_back("/dev/dri/" + name);
  }
  for (const char* path : {"/dev/nvidia0", "/dev/kfd", "/dev/dxg"}) paths.emplace_back(path);
  std::vector<DeviceNodeFacts> nodes;
  for (const std::string& path : paths) {
    struct stat info = {};
    if (::stat((root + path).c_str(), &info) != 0) continue;
    nodes.push_back({.path = path,
                     .is_usable = ::access((root + path).c_str(), R_OK | W_OK) == 0,
                     .group = GroupName(info.st_gid)});
  }
  return nodes;
}

// Makers whose GPUs a driver of the system can use; servers and virtual machines have others that
// only show a picture.
constexpr std::string_view kNvidia = "0x10de";
bool IsForComputing(std::string_view vendor) {
  return vendor == kNvidia || vendor == "0x1002" || vendor == "0x8086";
}

// The largest of a PCI device's six windows: "0x... 0x... 0x..." is begin, last byte, flags.
uint64_t LargestWindow(const std::string& resource) {
  constexpr size_t kWindows = 6;
  uint64_t largest = 0;
  std::istringstream lines(resource);
  std::string begin, last, flags;
  for (size_t i = 0; i < kWindows && lines >> begin >> last >> flags; ++i) {
    const auto at = ParseHex(begin);
    const auto end = ParseHex(last);
    if (at && end && *end > *at) largest = std::max(largest, *end - *at + 1);
  }
  return largest;
}

// Reasons of Intel's two drivers: a file for each, "1" while it holds. `begin`: of their names.
void AddReasons(const std::string& folder, std::string_view begin, CardFacts& card) {
  for (const std::string& path : FoldersIn(folder, begin)) {
    const std::string name = fs::path(path).filename().string().substr(begin.size());
    const bool is_new = !std::ranges::contains(card.slowed_by, name);
    if (name != "status" && is_new && ReadWord(path) == "1") card.slowed_by.push_back(name);
  }
}

// Reads files of hwmon: temperatures in thousandths of a degree, power in microwatts.
void ReadSensors(const std::string& folder, CardFacts& card) {
  for (const std::string& path : FoldersIn(folder, "temp")) {
    constexpr std::string_view kEnding = "_crit";
    if (!path.ends_with(kEnding)) continue;
    const uint64_t limit = NumberIn(path);
    const uint64_t now = NumberIn(path.substr(0, path.size() - kEnding.size()) + "_input");
    if (limit == 0 || now == 0) continue;
    const double left = (static_cast<double>(limit) - static_cast<double>(now)) / 1000.0;
    card.hottest = std::min(card.hottest.value_or(left), left);
  }
  card.power_limit = NumberIn(folder + "/power1_cap");
  card.usual_power = NumberIn(folder + "/power1_cap_default");
}

CardFacts ReadCard(const std::string& folder, std::string address, bool is_nvidia) {
  CardFacts card{.address = std::move(address), .is_nvidia = is_nvidia};
  card.memory = NumberIn(folder + "/mem_info_vram_total");
  card.visible = NumberIn(folder + "/mem_info_vis_vram_total");
  if (card.visible == 0)
    card.visible = LargestWindow(ReadSmallFile(folder + "/resource").value_or(""));
  card.level = ReadWord(folder + "/power_dpm_force_performance_level");
  for (const std::string& sensors : FoldersIn(folder + "/hwmon", "hwmon")) {
    ReadSensors(sensors, card);
  }
  for (const std::string& tile : FoldersIn(folder, "tile")) {  // xe
    card.memory += NumberIn(tile + "/physical_vram_size_bytes");
    for (const std::string& part : FoldersIn(tile, "gt")) {
      for (const std::string& clock : FoldersIn(part, "freq")) {
        AddReasons(clock + "/throttle", "reason_", card);
      }
    }
  }
  for (const std::string& picture : FoldersIn(folder + "/drm", "card")) {  // i915
    for (const std::string& part : FoldersIn(picture + "/gt", "gt")) {
      AddReasons(part, "throttle_reason_", card);
    }
  }
  return card;
}

void ReadGraphics(const std::string& root, GraphicsFacts& facts) {
  facts.nodes = ReadNodes(root);
  const std::string pci = root + "/sys/bus/pci/devices/";
  for (const std::string& address : NamesIn(pci)) {
    std::error_code ignored;
    const std::string folder = pci + address;
    const bool is_display = ReadWord(folder + "/class").starts_with("0x03");
    const std::string vendor = ReadWord(folder + "/vendor");
    if (!is_display || !IsForComputing(vendor)) continue;
    if (fs::exists(folder + "/driver", ignored)) {
      facts.cards.push_back(ReadCard(folder, address, vendor == kNvidia));
    } else {
      facts.driverless.push_back(address);
    }
  }
  std::error_code ignored;
  facts.has_nvidia_driver = fs::exists(root + "/proc/driver/nvidia/version", ignored);
  for (const char* folder :
       {"/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d"}) {
    for (const std::string& name : NamesIn(root + folder)) {
      const bool is_software = name.starts_with("lvp_");
      if (!name.ends_with(".json") || is_software) continue;
      ++facts.vulkan_drivers;
      facts.has_nvidia_vulkan |= name.starts_with("nvidia");
    }
  }
}

std::map<std::string, std::string> ReadEnvironment() {
  std::map<std::string, std::string> found;
  for (const char* name : {"GOMP_SPINCOUNT", "MOESTRO_STARTED_AGAIN", "GOMP_CPU_AFFINITY",
                           "OMP_PLACES", "OMP_PROC_BIND", "OMP_THREAD_LIMIT", "OMP_DYNAMIC"}) {
    if (const char* value = std::getenv(name); value != nullptr) found[name] = value;
  }
  return found;
}

FolderFacts ReadFolder(std::string purpose, const std::string& path, uint64_t wanted) {
  FolderFacts facts{.purpose = std::move(purpose), .path = path, .wanted = wanted};
  if (path.empty()) return facts;
  // The folder itself may not exist yet.
  if (const auto room = FreeBytesAt(path)) facts.available = *room;
  std::error_code ignored;
  const bool is_in_the_way =
      std::filesystem::exists(path, ignored) && !std::filesystem::is_directory(path, ignored);
  facts.is_writable = !is_in_the_way && ::access(NearestFolder(path).c_str(), W_OK | X_OK) == 0;
  return facts;
}

}  // namespace

void ReadSystemFacts(const std::string& root, SystemFacts& facts) {
  const std::string status = ReadSmallFile(root + "/proc/self/status").value_or("");
  const std::string allowed = LineOf(status, "Cpus_allowed_list:");
  facts.processor = ReadProcessors(root, allowed);
  facts.memory = ReadMemory(root);
  facts.sandbox = ReadSandbox(root, status);
  facts.numa = ReadNumaTopology(root, ParseCpuList(allowed).value_or(std::vector<uint32_t>()));
  facts.environment = ReadEnvironment();
  const std::string off = ReadWord(root + "/proc/sys/kernel/io_uring_disabled");
  if (off.size() == 1 && off[0] >= '0' && off[0] <= '2') facts.ring.switched_off = off[0] - '0';
  ReadGraphics(root, facts.graphics);
}

void ReadFolderFacts(const std::string& models, SystemFacts& facts) {
  facts.folders.push_back(ReadFolder("what is kept between starts", CacheFolder(), kGiB));
  facts.folders.push_back(ReadFolder("models from a hub", models, 10 * kGiB));
}

namespace {

namespace fs = std::filesystem;

struct Search {
  std::string begin;  // "libllama.so"
  std::string path = {};
};

int LookAt(dl_phdr_info* info, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  const fs::path path = info->dlpi_name != nullptr ? info->dlpi_name : "";
  if (!path.filename().string().starts_with(search.begin)) return 0;
  search.path = path.string();
  return 1;
}

// The version is in the name of the file that the loaded library's name points to.
std::string RunningVersion(std::string begin) {
  Search search{.begin = std::move(begin)};
  ::dl_iterate_phdr(LookAt, &search);
  std::error_code error;
  const fs::path file = fs::canonical(search.path, error);
  return error ? "" : VersionInName(file.string());
}

GgmlFacts ReadGgml() {
  GgmlFacts facts;
  facts.libraries = {
      {.name = "ggml", .built = MOESTRO_GGML_VERSION, .running = RunningVersion("libggml-base.so")},
      {.name = "llama", .built = MOESTRO_LLAMA_VERSION, .running = RunningVersion("libllama.so")}};
  facts.plug_in_folder = PlugInFolder();
  for (const CpuVariant& variant : ListCpuVariants()) {
    constexpr std::string_view kBegin = "libggml-cpu-";
    const std::string stem = fs::path(variant.path).stem().string();
    facts.variants.push_back(
        {.name = stem.substr(std::min(kBegin.size(), stem.size())), .score = variant.score});
  }
  return facts;
}

}  // namespace

RingState RingStateOf(int error) {
  if (error == 0) return RingState::kWorks;
  if (error == EPERM || error == EACCES) return RingState::kForbidden;
  return error == ENOSYS ? RingState::kMissing : RingState::kFails;
}

std::string VersionInName(std::string_view path) {
  constexpr std::string_view kEnding = ".so.";
  const size_t at = path.rfind(kEnding);
  return at == std::string_view::npos ? "" : std::string(path.substr(at + kEnding.size()));
}

void ReadLibraryFacts(SystemFacts& facts) {
  const int error = TryUring();
  facts.ring.state = RingStateOf(error);
  if (error != 0) facts.ring.error = ErrnoText(error);
  facts.ggml = ReadGgml();
  facts.graphics.devices = FindDevices();
  facts.ggml.has_cpu =
      std::ranges::contains(facts.graphics.devices, DeviceKind::kCpu, &DeviceInfo::kind);
  std::error_code ignored;
  facts.graphics.has_vulkan_plug_in =
      fs::exists(fs::path(facts.ggml.plug_in_folder) / "libggml-vulkan.so", ignored);
}

}  // namespace moestro
