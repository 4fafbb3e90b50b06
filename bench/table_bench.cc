// SPDX-License-Identifier: MIT
// Costs of a table of n-grams on the disk, alone: nothing is computed behind which reads could
// hide.
//
//   table_bench MODEL [--rounds 3] [--tokens 48] [--prompt 2048] [--threads 2] [--seed 1]
//
// Rows of random tokens are brought in three ways, in turn, of each round's own tokens:
//   reads    by the engine's TableRows, all rows of a step at once, past the page cache
//   faults   out of a mapped file, by as many threads as --threads says, a row after the other, as
//            a program brings them that leaves the table to the page cache
//   random   the same, while the kernel is told (MADV_RANDOM) to read no page ahead
// The file's pages are dropped from the page cache before the tokens and before the prompt. A line
// for each way gives the medians of the rounds: milliseconds of a decoded token (median and nine
// tenths of its tokens), seconds of the prompt, seconds of all threads' processor time for the
// prompt, and MiB that the prompt read of the disk, as the process counts them.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/work_limit.h"
#include "core/random_tokens.h"
#include "model/model_file.h"
#include "residency/ngram_rows.h"
#include "residency/table_rows.h"

namespace moestro {
namespace {

struct Setting {
  std::string model;
  uint32_t rounds = 3;
  uint32_t tokens = 48;
  uint32_t prompt = 2048;
  uint32_t threads = 2;
  uint32_t seed = 1;
};

struct Round {
  double token_ms = 0.0;
  double slow_token_ms = 0.0;  // nine tenths
  double prompt_seconds = 0.0;
  double prompt_cpu = 0.0;  // seconds
  double prompt_mib = 0.0;
};

// What the process has used: MiB of the disk, seconds of processors.
struct Used {
  double mib = 0.0;
  double cpu = 0.0;
};

Used UsedSoFar() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return {.mib = static_cast<double>(usage.ru_inblock) / 2048.0,
          .cpu = seconds(usage.ru_utime) + seconds(usage.ru_stime)};
}

// Brings the rows of a step.
using Bring = std::function<Status(std::span<const uint64_t> rows)>;

// A table that is mapped: each thread copies its share of a step's rows.
class MappedTable {
 public:
  static Result<std::unique_ptr<MappedTable>> Open(const std::string& path, const Extent& table,
                                                   uint64_t row_bytes, uint32_t threads) {
    auto mapped = std::make_unique<MappedTable>(table, row_bytes, threads);
    mapped->fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (mapped->fd_ < 0) return Fail(Errc::kIo, "{}: {}", path, std::strerror(errno));
    mapped->bytes_ = table.offset + table.length;
    void* at = ::mmap(nullptr, mapped->bytes_, PROT_READ, MAP_SHARED, mapped->fd_, 0);
    if (at == MAP_FAILED) return Fail(Errc::kIo, "{}: {}", path, std::strerror(errno));
    mapped->at_ = static_cast<const std::byte*>(at);
    return mapped;
  }
  MappedTable(const Extent& table, uint64_t row_bytes, uint32_t threads)
      : table_(table), row_bytes_(row_bytes), threads_(threads) {}
  MappedTable(const MappedTable&) = delete;
  MappedTable& operator=(const MappedTable&) = delete;
  ~MappedTable() {
    if (at_ != nullptr) ::munmap(const_cast<std::byte*>(at_), bytes_);
    if (fd_ >= 0) ::close(fd_);
  }

  void Advise(int advice) const { ::madvise(const_cast<std::byte*>(at_), bytes_, advice); }
  uint64_t Bring(std::span<const uint64_t> rows) const {
    std::vector<uint64_t> sums(threads_);
    {
      std::vector<std::jthread> team;
      for (uint32_t t = 0; t < threads_; ++t) {
        team.emplace_back([&, t] {
          for (size_t i = t; i < rows.size(); i += threads_) sums[t] += SumOf(rows[i]);
        });
      }
    }
    uint64_t sum = 0;
    for (const uint64_t part : sums) sum += part;
    return sum;
  }

 private:
  uint64_t SumOf(uint64_t row) const {
    const std::byte* from = at_ + table_.offset + row * row_bytes_;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < row_bytes_; ++i) sum += static_cast<uint64_t>(from[i]);
    return sum;
  }

  const Extent table_;
  const uint64_t row_bytes_;
  const uint32_t threads_;
  int fd_ = -1;
  uint64_t bytes_ = 0;
  const std::byte* at_ = nullptr;
};

// The rows of tokens [first, first + count) of a text.
std::vector<uint64_t> RowsOf(const NgramSpec& spec, std::span<const Token> text, size_t first,
                             size_t count) {
  std::vector<uint64_t> rows(count * spec.n_heads());
  for (size_t t = 0; t < count; ++t) {
    NgramRows(spec, text.first(first + t + 1),
              std::span(rows).subspan(t * spec.n_heads(), spec.n_heads()));
  }
  return rows;
}

double MedianOf(std::vector<double> values, double share = 0.5) {
  std::ranges::sort(values);
  return values.empty()
             ? 0.0
             : values[std::min(values.size() - 1,
                               static_cast<size_t>(share * static_cast<double>(values.size())))];
}

// Drops the file's pages from the page cache, where no mapping holds them.
Status DropPages(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Fail(Errc::kIo, "{}: {}", path, std::strerror(errno));
  const int failed = ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
  if (failed != 0) return Fail(Errc::kIo, "{}: {}", path, std::strerror(failed));
  return {};
}

Status MeasureTokens(const Setting& setting, const NgramSpec& spec, std::span<const Token> text,
                     const Bring& bring, Round& round) {
  std::vector<double> took;
  for (uint32_t t = 0; t < setting.tokens; ++t) {
    const double begin = SteadySeconds();
    TRY_STATUS(bring(RowsOf(spec, text, setting.prompt + t, 1)));
    took.push_back(1e3 * (SteadySeconds() - begin));
  }
  round.token_ms = MedianOf(took);
  round.slow_token_ms = MedianOf(std::move(took), 0.9);
  return {};
}

Status MeasurePrompt(const Setting& setting, const NgramSpec& spec, std::span<const Token> text,
                     const Bring& bring, Round& round) {
  const Used before = UsedSoFar();
  const double start = SteadySeconds();
  TRY_STATUS(bring(RowsOf(spec, text, 0, setting.prompt)));
  round.prompt_seconds = SteadySeconds() - start;
  const Used after = UsedSoFar();
  round.prompt_cpu = after.cpu - before.cpu;
  round.prompt_mib = after.mib - before.mib;
  return {};
}

struct Job {
  const Setting& setting;
  const ModelFile& model;
  TableRows::Sizes sizes;

  const std::string& path() const { return model.gguf.paths()[sizes.table.file]; }
};

// The engine's way.
struct Reads {
  std::unique_ptr<BlockReader> reader;
  std::unique_ptr<TableRows> rows;

  static Result<Bring> Open(const Job& job) {
    const auto reads = std::make_shared<Reads>();
    TRY(reads->reader,
        OpenReader({.queue_depth = TableRows::kReads, .threads = 32}, job.model.gguf.paths()));
    TRY(reads->rows, TableRows::Create(job.sizes, *reads->reader, job.model.gguf.paths()));
    return [reads](std::span<const uint64_t> asked) -> Status {
      reads->rows->Begin(asked);
      return reads->rows->Finish();
    };
  }
};

Result<Bring> OpenFaults(const Job& job, int advice) {
  TRY(std::unique_ptr<MappedTable> opened,
      MappedTable::Open(job.path(), job.sizes.table, job.sizes.row_bytes, job.setting.threads));
  const std::shared_ptr<MappedTable> mapped = std::move(opened);
  mapped->Advise(advice);
  return [mapped](std::span<const uint64_t> asked) -> Status {
    volatile uint64_t sum = mapped->Bring(asked);  // a compiler leaves no row out
    static_cast<void>(sum);
    return {};
  };
}

constexpr std::array<const char*, 3> kWays = {"reads", "faults", "random"};

Result<Bring> OpenWay(const Job& job, size_t way) {
  TRY_STATUS(DropPages(job.path()));
  if (way == 0) return Reads::Open(job);
  return OpenFaults(job, way == 1 ? MADV_NORMAL : MADV_RANDOM);
}

Result<Round> Measure(const Job& job, size_t way, std::span<const Token> text) {
  const NgramSpec& spec = *job.model.spec.ngrams;
  Round round;
  {
    TRY(const Bring bring, OpenWay(job, way));
    TRY_STATUS(MeasureTokens(job.setting, spec, text, bring, round));
  }
  TRY(const Bring bring, OpenWay(job, way));
  TRY_STATUS(MeasurePrompt(job.setting, spec, text, bring, round));
  return round;
}

void Print(const char* name, const std::vector<Round>& rounds) {
  const auto median = [&](double Round::* member) {
    std::vector<double> values;
    for (const Round& round : rounds) values.push_back(round.*member);
    return MedianOf(std::move(values));
  };
  std::printf("%-8s %9.3f %9.3f %9.3f %9.3f %9.1f\n", name, median(&Round::token_ms),
              median(&Round::slow_token_ms), median(&Round::prompt_seconds),
              median(&Round::prompt_cpu), median(&Round::prompt_mib));
}

Status Main(const Setting& setting) {
  TRY(const ModelFile model, ModelFile::Open(setting.model));
  const TensorInfo* const table = model.weights.ngram_table;
  if (table == nullptr) return Fail(Errc::kUsage, "{} has no table of n-grams", setting.model);
  const TableRows::Sizes sizes{
      .table = table->extent,
      .row_bytes = table->extent.length / static_cast<uint64_t>(table->ne[1]),
      .rows_at_once = setting.prompt * model.spec.ngrams->n_heads()};
  const Job job{.setting = setting, .model = model, .sizes = sizes};
  std::array<std::vector<Round>, kWays.size()> rounds;
  for (uint32_t r = 0; r < setting.rounds; ++r) {
    const auto text =
        RandomTokens(setting.prompt + setting.tokens, model.spec.n_vocab, setting.seed + r);
    for (size_t way = 0; way < kWays.size(); ++way) {
      TRY(const Round round, Measure(job, way, text));
      rounds[way].push_back(round);
    }
  }
  std::printf("%-8s %9s %9s %9s %9s %9s\n", "way", "token_ms", "slow_ms", "prompt_s", "cpu_s",
              "MiB");
  for (size_t way = 0; way < kWays.size(); ++way) Print(kWays[way], rounds[way]);
  return {};
}

Result<Setting> Parse(int argc, char** argv) {
  if (argc < 2 || argc % 2 != 0)
    return Fail(Errc::kUsage, "usage: table_bench MODEL [--FLAG N]...");
  Setting setting{.model = argv[1]};
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const auto number = static_cast<uint32_t>(std::strtoul(argv[i + 1], nullptr, 10));
    uint32_t* const member = flag == "--rounds"    ? &setting.rounds
                             : flag == "--tokens"  ? &setting.tokens
                             : flag == "--prompt"  ? &setting.prompt
                             : flag == "--threads" ? &setting.threads
                             : flag == "--seed"    ? &setting.seed
                                                   : nullptr;
    if (member == nullptr) return Fail(Errc::kUsage, "unknown flag '{}'", flag);
    *member = std::max(1U, number);
  }
  return setting;
}

}  // namespace
}  // namespace moestro

int main(int argc, char** argv) {
  const auto setting = moestro::Parse(argc, argv);
  const moestro::Status done = setting ? moestro::Main(*setting) : std::unexpected(setting.error());
  if (done) return 0;
  std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return 1;
}
