// SPDX-License-Identifier: MIT
#include "compute/numa_machine.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <climits>
#include <fstream>
#include <set>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/system_limits.h"
#include "base/text.h"

namespace moestro {
namespace {

using Numbers = std::vector<uint32_t>;

// More than the CPUs, or the nodes, of any kernel.
constexpr uint32_t kMostCpus = 1U << 16;
constexpr size_t kLongestList = size_t{1} << 16;

std::optional<uint32_t> TakeNumber(std::string_view& text) {
  uint32_t number = 0;
  const char* begin = text.data();
  const auto [stop, error] = std::from_chars(begin, begin + text.size(), number);
  if (error != std::errc{} || number >= kMostCpus) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(stop - begin));
  return number;
}

bool TakeChar(std::string_view& text, char wanted) {
  if (!text.starts_with(wanted)) return false;
  text.remove_prefix(1);
  return true;
}

std::optional<std::string> TextOf(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::string text(kLongestList, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

std::optional<Numbers> ListIn(const std::string& path) {
  const std::optional<std::string> text = TextOf(path);
  return text ? ParseCpuList(*text) : std::nullopt;
}

// The nodes whose memory this process may take: nodes with memory, within the process's cpuset.
std::optional<Numbers> MemoryNodes(const std::string& root) {
  const std::string nodes = root + "/sys/devices/system/node/";
  std::optional<Numbers> found =
      ListIn(nodes + "has_memory").or_else([&] { return ListIn(nodes + "has_normal_memory"); });
  std::ifstream status(root + "/proc/self/status");
  constexpr std::string_view kField = "Mems_allowed_list:";
  for (std::string line; found && std::getline(status, line);) {
    if (!line.starts_with(kField)) continue;
    const size_t begin = std::min(line.find_first_not_of(" \t", kField.size()), line.size());
    const std::optional<Numbers> allowed = ParseCpuList(std::string_view(line).substr(begin));
    if (!allowed) return std::nullopt;
    std::erase_if(*found, [&](uint32_t node) { return !std::ranges::contains(*allowed, node); });
  }
  return found;
}

// The lowest CPU that shares a core with `cpu`: one name per core.
uint32_t CoreOf(const std::string& root, uint32_t cpu) {
  const std::optional<Numbers> siblings =
      ListIn(Format("{}/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", root, cpu));
  return siblings && !siblings->empty() ? siblings->front() : cpu;
}

}  // namespace

std::optional<Numbers> ParseCpuList(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  Numbers numbers;
  while (!text.empty()) {
    const std::optional<uint32_t> first = TakeNumber(text);
    if (!first) return std::nullopt;
    std::optional<uint32_t> last = first;
    if (TakeChar(text, '-')) last = TakeNumber(text);
    if (!last || *last < *first || (!numbers.empty() && *first <= numbers.back())) {
      return std::nullopt;
    }
    for (uint32_t n = *first; n <= *last; ++n) numbers.push_back(n);
    if (!text.empty() && (!TakeChar(text, ',') || text.empty())) return std::nullopt;
  }
  return numbers;
}

NumaTopology ReadNumaTopology(const std::string& root, std::span<const uint32_t> allowed) {
  const std::string folder = root + "/sys/devices/system/node/";
  const std::optional<Numbers> ids = ListIn(folder + "online");
  const std::optional<Numbers> with_memory = MemoryNodes(root);
  if (!ids || !with_memory) return {};
  NumaTopology found;
  std::set<uint32_t> seen;
  for (const uint32_t id : *ids) {
    NumaNode node{.id = id, .has_memory = std::ranges::contains(*with_memory, id)};
    const std::optional<Numbers> cpus = ListIn(Format("{}node{}/cpulist", folder, id));
    if (!cpus) return {};
    std::set<uint32_t> cores;
    for (const uint32_t cpu : *cpus) {
      if (!seen.insert(cpu).second) return {};
      if (!std::ranges::contains(allowed, cpu)) continue;
      node.cpus.push_back(cpu);
      cores.insert(CoreOf(root, cpu));
    }
    node.cores = static_cast<uint32_t>(cores.size());
    found.nodes.push_back(std::move(node));
  }
  const std::optional<Numbers> online = ListIn(root + "/sys/devices/system/cpu/online");
  found.is_whole = online && !online->empty() && std::ranges::all_of(*online, [&](uint32_t cpu) {
                     return std::ranges::contains(allowed, cpu) && seen.contains(cpu);
                   });
  return found;
}

namespace {

// Bits of a word of the kernel's sets, and the most CPUs and nodes in a set.
constexpr uint32_t kWordBits = sizeof(unsigned long) * CHAR_BIT;
constexpr uint32_t kMostNumbers = 1U << 13;
using Bits = std::array<unsigned long, kMostNumbers / kWordBits>;

// EINVAL: a number beyond the set.
int Fill(Bits& bits, std::span<const uint32_t> numbers) {
  bits.fill(0);
  for (const uint32_t n : numbers) {
    if (n >= kMostNumbers) return EINVAL;
    bits[n / kWordBits] |= 1UL << (n % kWordBits);
  }
  return 0;
}

int ModeOf(NewPages how) {
  switch (how) {
    case NewPages::kPreferred:
      return MPOL_PREFERRED;
    case NewPages::kInterleaved:
      return MPOL_INTERLEAVE;
    case NewPages::kUsual:
      break;
  }
  return MPOL_DEFAULT;
}

}  // namespace

NumaTopology KernelNumaMachine::topology() const { return ReadNumaTopology("", AllowedCpus()); }

CpuKinds KernelNumaMachine::cpus() const {
  CpuKinds kinds{.all = AllowedCpus()};
  kinds.fast = FastCpus(kinds.all);
  return kinds;
}

bool KernelNumaMachine::has_chosen_pages() const {
  int mode = MPOL_DEFAULT;
  // A container may forbid the call; a refusal counts as no choice.
  if (syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, nullptr, 0UL) != 0) return false;
  return mode != MPOL_DEFAULT;
}

int KernelNumaMachine::RunOn(std::span<const uint32_t> cpus) {
  Bits bits;
  if (const int error = Fill(bits, cpus); error != 0) return error;
  const auto* set = reinterpret_cast<const cpu_set_t*>(bits.data());
  return sched_setaffinity(0, sizeof(bits), set) == 0 ? 0 : errno;
}

int KernelNumaMachine::TakePages(NewPages how, std::span<const uint32_t> nodes) {
  // The kernel refuses sets with room for more nodes than the kernel's own sets have.
  constexpr unsigned long kMostNodes = 1024;
  Bits bits;
  if (const int error = Fill(bits, nodes); error != 0) return error;
  if (std::ranges::any_of(nodes, [](uint32_t node) { return node >= kMostNodes; })) return EINVAL;
  const bool is_usual = how == NewPages::kUsual;
  // The kernel expects the number of bits plus one.
  const long done = syscall(SYS_set_mempolicy, ModeOf(how), is_usual ? nullptr : bits.data(),
                            is_usual ? 0UL : kMostNodes + 1);
  return done == 0 ? 0 : errno;
}

int KernelNumaMachine::KeepSmall(std::span<std::byte> memory) {
  return madvise(memory.data(), memory.size(), MADV_NOHUGEPAGE) == 0 ? 0 : errno;
}

int KernelNumaMachine::Touch(std::span<std::byte> memory) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(memory.data(), memory.size(), MADV_POPULATE_WRITE) == 0) return 0;
#endif
  // For kernels before 5.14.
  for (size_t at = 0; at < memory.size(); at += 4 * kKiB) {
    std::atomic_ref(reinterpret_cast<unsigned char&>(memory[at])).fetch_or(0);
  }
  return 0;
}

}  // namespace moestro
