// SPDX-License-Identifier: MIT
#include "residency/table_rows.h"

#include <algorithm>
#include <utility>

#include "base/number.h"

namespace moestro {
namespace {

uint64_t LandingBytes(uint64_t row_bytes, uint64_t block) {
  return std::max(AlignUp(TableRows::kMostRead, block), WindowCapacity(row_bytes, block));
}

}  // namespace

uint32_t TableRows::Sizes::cached_rows() const {
  const uint64_t rows =
      std::min(kCacheBytes / (row_bytes + RowCache::kBytesOfRow), table.length / row_bytes);
  return static_cast<uint32_t>(rows);
}

uint64_t TableRows::BytesFor(const Sizes& sizes, uint64_t block) {
  // Lists hold a row's number and its place in the order, and as much again for reads.
  constexpr uint64_t kLists = 2 * (sizeof(uint64_t) + sizeof(uint32_t)) + sizeof(RowRead);
  return kReads * LandingBytes(sizes.row_bytes, block) +
         sizes.rows_at_once * (sizes.row_bytes + kLists) +
         sizes.cached_rows() * (sizes.row_bytes + RowCache::kBytesOfRow);
}

Result<std::unique_ptr<TableRows>> TableRows::Create(const Sizes& sizes, BlockReader& reader,
                                                     std::vector<std::string> paths, Clock clock) {
  std::unique_ptr<TableRows> rows(new TableRows(sizes, reader, std::move(paths), std::move(clock)));
  TRY_STATUS(rows->Allocate(sizes));
  return rows;
}

TableRows::TableRows(const Sizes& sizes, BlockReader& reader, std::vector<std::string> paths,
                     Clock clock)
    : layout_{.table = sizes.table, .row_bytes = sizes.row_bytes, .block = reader.block()},
      queue_(reader, std::move(paths),
             {.max_request = LandingBytes(sizes.row_bytes, reader.block()),
              .max_in_flight = kReads,
              .max_speculative = kReads,
              .max_ahead = kReads}),
      clock_(std::move(clock)),
      landing_bytes_(LandingBytes(sizes.row_bytes, reader.block())),
      cache_(sizes.cached_rows()),
      read_in_(kReads) {
  for (uint32_t place = 0; place < kReads; ++place) free_landing_.push_back(place);
}

Status TableRows::Allocate(const Sizes& sizes) {
  TRY(landing_, HostMemory::Allocate(kReads * landing_bytes_));
  TRY(rows_, HostMemory::Allocate(sizes.rows_at_once * layout_.row_bytes));
  TRY(cache_memory_, HostMemory::Allocate(cache_.places() * layout_.row_bytes));
  return {};
}

TableRows::~TableRows() { Settle(); }

// Gives up reads that are not at the disk yet, and waits for the others.
void TableRows::Settle() {
  next_read_ = reads_.size();
  while (!queue_.idle()) {
    done_.clear();
    queue_.Wait(done_);
    for (const ExtentDone& done : done_) free_landing_.push_back(static_cast<uint32_t>(done.tag));
  }
}

void TableRows::Begin(std::span<const uint64_t> rows) {
  CHECK(rows.size() * layout_.row_bytes <= rows_.size());
  Settle();
  error_.reset();
  asked_.assign(rows.begin(), rows.end());
  order_.clear();
  counts_.rows += rows.size();
  for (size_t i = 0; i < rows.size(); ++i) {
    CHECK(rows[i] < layout_.n_rows());
    const auto place = cache_.Find(rows[i]);
    if (place) {
      std::copy_n(cached(*place), layout_.row_bytes, rows_.data() + i * layout_.row_bytes);
    } else {
      order_.push_back(static_cast<uint32_t>(i));
    }
  }
  std::ranges::stable_sort(order_, {}, [&](uint32_t i) { return asked_[i]; });
  distinct_.clear();
  begins_.clear();
  for (uint32_t at = 0; at < order_.size(); ++at) {
    const uint64_t row = asked_[order_[at]];
    if (!distinct_.empty() && distinct_.back() == row) continue;
    distinct_.push_back(row);
    begins_.push_back(at);
  }
  begins_.push_back(static_cast<uint32_t>(order_.size()));
  counts_.hits += rows.size() - distinct_.size();
  reads_ = MergeRows(layout_, distinct_, kMostRead);
  next_read_ = 0;
  Submit();
}

// Hands reads to the queue as long as places for them are free.
void TableRows::Submit() {
  while (next_read_ < reads_.size() && !free_landing_.empty() && !error_) {
    const uint32_t place = free_landing_.back();
    free_landing_.pop_back();
    read_in_[place] = next_read_;
    queue_.Enqueue({.from = reads_[next_read_].from,
                    .landing = landing_.bytes().subspan(place * landing_bytes_, landing_bytes_),
                    .tag = place});
    ++next_read_;
  }
  done_.clear();
  queue_.Pump(done_);
  Collect();
}

void TableRows::Collect() {
  for (const ExtentDone& done : done_) Land(done);
}

void TableRows::Land(const ExtentDone& done) {
  const auto place = static_cast<uint32_t>(done.tag);
  free_landing_.push_back(place);
  if (done.error) {
    if (!error_) error_ = done.error;
    return;
  }
  const RowRead& read = reads_[read_in_[place]];
  const Window window = CoveringWindow(read.from, layout_.block);
  counts_.reads += 1;
  counts_.bytes_read += window.length;
  const std::byte* bytes = landing_.data() + place * landing_bytes_ + window.residue;
  for (size_t d = read.first; d < read.first + read.count; ++d) {
    const std::byte* row = bytes + (distinct_[d] - distinct_[read.first]) * layout_.row_bytes;
    for (uint32_t at = begins_[d]; at < begins_[d + 1]; ++at) {
      std::copy_n(row, layout_.row_bytes, rows_.data() + order_[at] * layout_.row_bytes);
    }
    const auto kept = cache_.Insert(distinct_[d]);
    if (kept) std::copy_n(row, layout_.row_bytes, cached(*kept));
  }
}

void TableRows::Pump() {
  if (is_done()) return;
  done_.clear();
  queue_.Pump(done_);
  Collect();
  Submit();
}

Status TableRows::Finish() {
  if (!is_done()) {
    const double start = clock_();
    Pump();
    while (!is_done() && !error_) {
      done_.clear();
      queue_.Wait(done_);
      Collect();
      Submit();
    }
    counts_.wait_seconds += clock_() - start;
  }
  if (!error_) return {};
  Settle();
  return std::unexpected(*error_);
}

std::vector<std::byte> TableRows::Take(size_t count) const {
  return {rows_.data(), rows_.data() + count * layout_.row_bytes};
}

// Reads of other rows may be under way still, if their step has failed.
void TableRows::Give(std::span<const std::byte> rows) {
  Settle();
  error_.reset();
  std::ranges::copy(rows, rows_.data());
}

}  // namespace moestro
