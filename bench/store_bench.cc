// SPDX-License-Identifier: MIT
// Disk bandwidth and its cost in CPU time, by reader, request size and depth.
//
//   store_bench FILE [MIB_PER_RUN [busy] [small-pages]]
//
// Reads random aligned places of FILE through a ReadQueue, as the engine does, one line per
// setting:
//   reader request depth MiB/s cpu_s/GiB own_s/GiB ceiling at_7 at_14
// cpu counts all threads of the process, own the calling thread alone: that is what computation on
// the same cores loses. From own follow the GB/s at which reading takes the whole of a core, and
// the percent of one at 7 and at 14 GB/s. A kernel's threads are not counted, such as those that
// copy for a loop device. "pinned": the landing memory is registered with the reader. With "busy"
// the calling thread polls every 50 us between pieces of arithmetic instead of sleeping; own then
// is how much longer the arithmetic took. Reads land in huge pages, as the engine's do, unless
// "small-pages" is given.
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/number.h"
#include "store/read_queue.h"

namespace moestro {
namespace {

struct Setting {
  ReaderKind kind = ReaderKind::kUring;
  uint64_t request = kMiB;
  unsigned depth = 8;
  bool is_pinned = false;
  bool is_busy = false;
  bool has_small_pages = false;
};

constexpr size_t kRounds = 5;

struct Figures {
  std::string reader;
  double mib_per_second = 0.0;
  double cpu_per_gib = 0.0;  // seconds, all threads
  double own_per_gib = 0.0;  // seconds, calling thread
};

double CpuSeconds(int who) {
  rusage usage = {};
  ::getrusage(who, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// About 50 us of arithmetic that the compiler cannot drop.
double Arithmetic() {
  double x = 1.0;
  for (int i = 0; i < 10'000; ++i) x = x * 1.0000001 + 1e-9;
  volatile double sink = x;
  return sink;
}

// CPU seconds that one call takes when nothing is read.
double ArithmeticSeconds() {
  const double start = CpuSeconds(RUSAGE_THREAD);
  for (int i = 0; i < 5000; ++i) Arithmetic();
  return (CpuSeconds(RUSAGE_THREAD) - start) / 5000;
}

// Of a file or a block device.
Result<uint64_t> SizeOf(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const auto size = static_cast<int64_t>(in.tellg());
  if (size <= 0) return Fail(Errc::kIo, "{} cannot be read or is empty", path);
  return static_cast<uint64_t>(size);
}

using Memory = std::unique_ptr<std::byte, decltype(&std::free)>;

Result<Figures> Run(const Setting& setting, const std::string& path, uint64_t total) {
  TRY(const std::unique_ptr<BlockReader> reader,
      OpenReader({.kind = setting.kind, .queue_depth = setting.depth, .threads = setting.depth},
                 {path}));
  // The queue gets two extents for each device read, so that it never runs dry.
  const unsigned n_landings = setting.depth * 2;
  const uint64_t capacity = AlignUp(setting.request * n_landings, 2 * kMiB);
  const Memory memory{static_cast<std::byte*>(std::aligned_alloc(2 * kMiB, capacity)), &std::free};
  if (!memory) return Fail(Errc::kNoMemory, "no memory for {} reads", n_landings);
  ::madvise(memory.get(), capacity, setting.has_small_pages ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  std::fill_n(memory.get(), capacity, std::byte{0});

  ReadQueue queue(*reader, {path},
                  {.max_request = setting.request,
                   .max_in_flight = setting.depth,
                   .max_speculative = setting.depth});
  const std::array landing{std::span(memory.get(), capacity)};
  const bool is_pinned = setting.is_pinned && queue.RegisterMemory(landing) > 0;
  TRY(const uint64_t size, SizeOf(path));
  const uint64_t n_places = size / setting.request;
  std::mt19937_64 random(1);
  uint64_t left = std::max<uint64_t>(total / setting.request, 1);
  const uint64_t n_reads = left;
  const auto ask = [&](uint64_t place) {
    const uint64_t offset = AlignDown(random() % n_places * setting.request, reader->block());
    queue.Enqueue({.from = {.file = 0, .offset = offset, .length = setting.request},
                   .landing = {memory.get() + place * setting.request, setting.request},
                   .tag = place});
    --left;
  };
  const double piece = setting.is_busy ? ArithmeticSeconds() : 0.0;
  const double start = Now();
  const double cpu = CpuSeconds(RUSAGE_SELF);
  const double own = CpuSeconds(RUSAGE_THREAD);
  uint64_t pieces = 0;
  for (uint64_t i = 0; i < n_landings && left > 0; ++i) ask(i);
  std::vector<ExtentDone> done;
  while (!queue.idle()) {
    done.clear();
    if (setting.is_busy) {
      Arithmetic();
      ++pieces;
      queue.Pump(done);
    } else {
      queue.Wait(done);
    }
    for (const ExtentDone& d : done) {
      if (d.error) return std::unexpected(*d.error);
      if (left > 0) ask(d.tag);
    }
  }
  const double seconds = Now() - start;
  const double useful = static_cast<double>(pieces) * piece;
  const double gib = static_cast<double>(n_reads * setting.request) / static_cast<double>(kGiB);
  queue.ForgetMemory();
  return Figures{.reader = reader->description() + (is_pinned ? ", pinned" : ""),
                 .mib_per_second = gib * 1024 / seconds,
                 .cpu_per_gib = (CpuSeconds(RUSAGE_SELF) - cpu - useful) / gib,
                 .own_per_gib = (CpuSeconds(RUSAGE_THREAD) - own - useful) / gib};
}

double Median(const std::vector<Figures>& runs, double Figures::* member) {
  std::vector<double> values;
  for (const Figures& f : runs) values.push_back(f.*member);
  std::ranges::sort(values);
  return values[values.size() / 2];
}

std::vector<Setting> AllSettings(bool is_busy, bool has_small_pages) {
  std::vector<Setting> settings;
  for (const uint64_t request : {128 * kKiB, 256 * kKiB, 864 * kKiB, kMiB, 2 * kMiB, 4 * kMiB}) {
    for (const unsigned depth : {1U, 2U, 4U, 8U, 16U, 32U, 64U}) {
      for (const bool is_pinned : {false, true}) {
        settings.push_back(
            {ReaderKind::kUring, request, depth, is_pinned, is_busy, has_small_pages});
      }
      settings.push_back({ReaderKind::kPread, request, depth, false, is_busy, has_small_pages});
    }
  }
  return settings;
}

// GB/s at which reading takes the whole of a core.
double Ceiling(double own_per_gib) { return static_cast<double>(kGiB) * 1e-9 / own_per_gib; }

int Main(const std::string& path, uint64_t total, const std::vector<Setting>& settings) {
  std::vector<std::vector<Figures>> runs(settings.size());
  for (size_t round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < settings.size(); ++i) {
      auto figures = Run(settings[i], path, total);
      if (!figures) {
        std::fprintf(stderr, "%s\n", figures.error().message.c_str());
        return 1;
      }
      runs[i].push_back(*std::move(figures));
    }
  }
  std::printf("%-28s %8s %5s %8s %9s %9s %8s %6s %6s\n", "reader", "request", "depth", "MiB/s",
              "cpu_s/GiB", "own_s/GiB", "ceiling", "at_7", "at_14");
  for (size_t i = 0; i < settings.size(); ++i) {
    const double own = Median(runs[i], &Figures::own_per_gib);
    const double ceiling = Ceiling(own);
    std::printf("%-28s %8llu %5u %8.0f %9.4f %9.4f %8.0f %5.1f%% %5.1f%%\n",
                runs[i][0].reader.c_str(), static_cast<unsigned long long>(settings[i].request),
                settings[i].depth, Median(runs[i], &Figures::mib_per_second),
                Median(runs[i], &Figures::cpu_per_gib), own, ceiling, 100.0 * 7.0 / ceiling,
                100.0 * 14.0 / ceiling);
  }
  return 0;
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: store_bench FILE [MIB_PER_RUN [busy] [small-pages]]\n");
    return 2;
  }
  const uint64_t mib = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 256;
  const auto has = [&](std::string_view word) {
    return std::any_of(argv + 1, argv + argc, [=](const char* arg) { return word == arg; });
  };
  return moestro::Main(argv[1], mib * moestro::kMiB,
                       moestro::AllSettings(has("busy"), has("small-pages")));
}
