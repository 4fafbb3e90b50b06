// SPDX-License-Identifier: MIT
// Costs of a table of n-grams on the disk, alone: nothing is computed behind which reads could
// hide.
//
//   table_bench MODEL [--rounds 3] [--tokens 48] [--prompt 2048] [--threads 2]
//
// Rows of random tokens are brought in two ways, in turn, of each round's own tokens:
//   reads    by the engine's TableRows, all rows of a step at once, past the page cache
//   faults   out of a mapped file, by as many threads as --threads says, a row after the other, as
//            a program brings them that leaves the table to the page cache
// The pages of both are dropped from the page cache before each. A line for each way gives the
// medians of the rounds: milliseconds of a decoded token (median and nine tenths of its tokens),
// seconds of the prompt, and MiB read of the disk, as the process counts them.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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
};

struct Round {
  double token_ms = 0.0;
  double slow_token_ms = 0.0;  // nine tenths
  double prompt_seconds = 0.0;
  double mib = 0.0;
};

double MibRead() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_inblock) / 2048.0;
}

// Brings the rows of a step; what they sum to keeps a compiler from leaving them out.
using Bring = std::function<Result<uint64_t>(std::span<const uint64_t> rows)>;

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

// A prompt, and the tokens that follow it.
Result<Round> Measure(const Setting& setting, const NgramSpec& spec, std::span<const Token> text,
                      const Bring& bring) {
  Round round;
  uint64_t sum = 0;
  const double read = MibRead();
  const double start = SteadySeconds();
  TRY(sum, bring(RowsOf(spec, text, 0, setting.prompt)));
  round.prompt_seconds = SteadySeconds() - start;
  std::vector<double> took;
  for (uint32_t t = 0; t < setting.tokens; ++t) {
    const double begin = SteadySeconds();
    TRY(const uint64_t more, bring(RowsOf(spec, text, setting.prompt + t, 1)));
    took.push_back(1e3 * (SteadySeconds() - begin));
    sum += more;
  }
  volatile uint64_t sink = sum;
  (void)sink;
  round.token_ms = MedianOf(took);
  round.slow_token_ms = MedianOf(std::move(took), 0.9);
  round.mib = MibRead() - read;
  return round;
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

Result<Round> ByReads(const Setting& setting, const ModelFile& model, const TableRows::Sizes& sizes,
                      std::span<const Token> text) {
  TRY(const auto reader,
      OpenReader({.queue_depth = TableRows::kReads, .threads = 32}, model.gguf.paths()));
  TRY(const auto rows, TableRows::Create(sizes, *reader, model.gguf.paths()));
  return Measure(setting, *model.spec.ngrams, text,
                 [&](std::span<const uint64_t> asked) -> Result<uint64_t> {
                   rows->Begin(asked);
                   TRY_STATUS(rows->Finish());
                   uint64_t sum = 0;
                   for (size_t i = 0; i < asked.size(); ++i) {
                     sum += static_cast<uint64_t>(rows->row(i)[0]);
                   }
                   return sum;
                 });
}

Result<Round> ByFaults(const Setting& setting, const ModelFile& model,
                       const TableRows::Sizes& sizes, std::span<const Token> text) {
  TRY(const auto mapped, MappedTable::Open(model.gguf.paths()[sizes.table.file], sizes.table,
                                           sizes.row_bytes, setting.threads));
  return Measure(
      setting, *model.spec.ngrams, text,
      [&](std::span<const uint64_t> asked) -> Result<uint64_t> { return mapped->Bring(asked); });
}

void Print(const char* name, const std::vector<Round>& rounds) {
  const auto median = [&](double Round::* member) {
    std::vector<double> values;
    for (const Round& round : rounds) values.push_back(round.*member);
    return MedianOf(std::move(values));
  };
  std::printf("%-8s %9.3f %9.3f %9.3f %9.1f\n", name, median(&Round::token_ms),
              median(&Round::slow_token_ms), median(&Round::prompt_seconds), median(&Round::mib));
}

Status Main(const Setting& setting) {
  TRY(const ModelFile model, ModelFile::Open(setting.model));
  const TensorInfo* const table = model.weights.ngram_table;
  if (table == nullptr) return Fail(Errc::kUsage, "{} has no table of n-grams", setting.model);
  const TableRows::Sizes sizes{
      .table = table->extent,
      .row_bytes = table->extent.length / static_cast<uint64_t>(table->ne[1]),
      .rows_at_once = setting.prompt * model.spec.ngrams->n_heads()};
  const std::string& path = model.gguf.paths()[table->extent.file];
  std::array<std::vector<Round>, 2> rounds;
  for (uint32_t r = 0; r < setting.rounds; ++r) {
    const auto text =
        RandomTokens(setting.prompt + setting.tokens, model.spec.n_vocab, kDefaultSeed + r);
    for (size_t way = 0; way < rounds.size(); ++way) {
      TRY_STATUS(DropPages(path));
      TRY(const Round round, (way == 0 ? ByReads : ByFaults)(setting, model, sizes, text));
      rounds[way].push_back(round);
    }
  }
  std::printf("%-8s %9s %9s %9s %9s\n", "way", "token_ms", "slow_ms", "prompt_s", "MiB");
  Print("reads", rounds[0]);
  Print("faults", rounds[1]);
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
