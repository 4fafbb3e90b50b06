// SPDX-License-Identifier: MIT
// numa_pages PID: the memory nodes of the pages of a process's largest anonymous memory, on one
// line: pages on each node, and then how long the runs of pages of one node are, the most frequent
// first. Part of scripts/numa_vm.sh.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr uint64_t kPage = 4096;

// [begin, end) of the largest private mapping of no file.
std::pair<uint64_t, uint64_t> LargestOf(const std::string& pid) {
  std::pair<uint64_t, uint64_t> largest;
  std::ifstream maps("/proc/" + pid + "/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0;
    unsigned long end = 0;
    unsigned long inode = 0;
    char flags[8] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %7s %*x %*s %lu", &begin, &end, flags, &inode) != 4) {
      continue;
    }
    const bool is_ours = inode == 0 && std::string(flags) == "rw-p";
    if (is_ours && end - begin > largest.second - largest.first) largest = {begin, end};
  }
  return largest;
}

// The node of each page; below 0: none.
std::vector<int> NodesOf(int pid, uint64_t begin, uint64_t end) {
  std::vector<void*> pages;
  for (uint64_t at = begin; at < end; at += kPage) pages.push_back(reinterpret_cast<void*>(at));
  std::vector<int> nodes(pages.size(), -1);
  if (syscall(SYS_move_pages, pid, pages.size(), pages.data(), nullptr, nodes.data(), 0) != 0) {
    std::perror("move_pages");
  }
  return nodes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto [begin, end] = LargestOf(argv[1]);
  const std::vector<int> nodes = NodesOf(std::atoi(argv[1]), begin, end);
  std::map<int, uint64_t> pages;
  std::map<std::pair<int, uint64_t>, uint64_t> runs;  // how often, by node and length
  for (size_t i = 0; i < nodes.size();) {
    const size_t from = i;
    while (i < nodes.size() && nodes[i] == nodes[from]) ++i;
    pages[nodes[from]] += i - from;
    ++runs[{nodes[from], i - from}];
  }
  for (const auto& [node, n] : pages) {
    std::printf("node %d: %lu pages; ", node, static_cast<unsigned long>(n));
  }
  std::vector<std::pair<uint64_t, std::pair<int, uint64_t>>> often;
  for (const auto& [run, n] : runs) often.emplace_back(n, run);
  std::ranges::sort(often, std::ranges::greater());
  std::printf("runs:");
  for (size_t i = 0; i < std::min<size_t>(often.size(), 6); ++i) {
    std::printf(" %lu x %lu on node %d", static_cast<unsigned long>(often[i].first),
                static_cast<unsigned long>(often[i].second.second), often[i].second.first);
  }
  std::printf("\n");
  return 0;
}
