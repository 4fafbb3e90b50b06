// SPDX-License-Identifier: MIT
#include "store/block_reader.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/result.h"
#include "base/text.h"
#include "store/open_files.h"
#include "store/uring_reader.h"

namespace moestro {

Result<std::unique_ptr<BlockReader>> OpenReader(const ReaderOptions& options,
                                                const std::vector<std::string>& paths) {
  if (options.kind != ReaderKind::kPread) {
    auto reader = OpenUringReader(paths, options.queue_depth, options.least_block);
    const bool can_fall_back = options.kind == ReaderKind::kAuto;
    if (reader || !can_fall_back || reader.error().code != Errc::kUnsupported) return reader;
  }
  return OpenPreadReader(paths, {.threads = options.threads,
                                 .queue_depth = options.queue_depth,
                                 .least_block = options.least_block});
}

namespace {

class PreadReader final : public BlockReader {
 public:
  PreadReader(OpenFiles files, size_t capacity) : files_(std::move(files)), capacity_(capacity) {
    finished_.reserve(capacity);  // so that threads allocate no memory
  }
  PreadReader(const PreadReader&) = delete;
  PreadReader& operator=(const PreadReader&) = delete;
  ~PreadReader() override;
  Status StartThreads(unsigned count);

  uint64_t block() const override { return files_.block(); }
  bool Submit(const BlockRead& read) override;
  size_t Poll(std::span<BlockDone> out) override;
  size_t Wait(std::span<BlockDone> out) override;
  size_t WaitBriefly(std::span<BlockDone> out) override;
  std::string description() const override {
    return Format("pread x{}, {}", threads_.size(), files_.description());
  }

 private:
  void Work();
  BlockDone Read(const BlockRead& read) const;
  size_t TakeFinished(std::span<BlockDone> out);  // REQUIRES: mutex_ is held

  const OpenFiles files_;
  const size_t capacity_;
  size_t n_in_flight_ = 0;  // caller's thread only: submitted and not yet returned

  // Never held during a read.
  std::mutex mutex_;
  std::condition_variable has_work_;
  std::condition_variable has_finished_;
  std::deque<BlockRead> waiting_;    // guarded by mutex_
  std::vector<BlockDone> finished_;  // guarded by mutex_
  bool is_stopping_ = false;         // guarded by mutex_
  // Size of finished_, readable without the lock: keeps Poll() cheap when nothing happened.
  // Relaxed: a hint, and the lock that Poll() then takes passes the bytes on.
  std::atomic<size_t> n_finished_ = 0;

  std::vector<std::thread> threads_;  // started last, joined by the destructor
};

Status PreadReader::StartThreads(unsigned count) {
  try {
    for (unsigned i = 0; i < count; ++i) {
      threads_.emplace_back([this] { Work(); });
      pthread_setname_np(threads_.back().native_handle(), Format("moestro-rd-{}", i).c_str());
    }
  } catch (const std::system_error& e) {
    return Fail(Errc::kNoMemory, "cannot start {} reader threads: {}", count, e.what());
  }
  return {};
}

PreadReader::~PreadReader() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool PreadReader::Submit(const BlockRead& read) {
  CHECK(read.file < files_.size());
  if (n_in_flight_ == capacity_) return false;
  ++n_in_flight_;
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(read);
  }
  has_work_.notify_one();
  return true;
}

size_t PreadReader::Poll(std::span<BlockDone> out) {
  if (n_finished_.load(std::memory_order_relaxed) == 0) return 0;
  const std::lock_guard lock(mutex_);
  return TakeFinished(out);
}

size_t PreadReader::Wait(std::span<BlockDone> out) {
  CHECK(!out.empty());
  if (n_in_flight_ == 0) return 0;
  std::unique_lock lock(mutex_);
  has_finished_.wait(lock, [this] { return !finished_.empty(); });
  return TakeFinished(out);
}

size_t PreadReader::WaitBriefly(std::span<BlockDone> out) {
  CHECK(!out.empty());
  if (n_in_flight_ == 0) return 0;
  std::unique_lock lock(mutex_);
  has_finished_.wait_for(lock, kBriefly, [this] { return !finished_.empty(); });
  return TakeFinished(out);
}

size_t PreadReader::TakeFinished(std::span<BlockDone> out) {
  const size_t n = std::min(out.size(), finished_.size());
  const size_t rest = finished_.size() - n;
  std::copy_n(finished_.begin() + static_cast<std::ptrdiff_t>(rest), n, out.begin());
  finished_.resize(rest);
  n_finished_.store(rest, std::memory_order_relaxed);
  n_in_flight_ -= n;
  return n;
}

// The body of every thread: reads until stopping, and then what still waits.
void PreadReader::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    has_work_.wait(lock, [this] { return is_stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const BlockRead read = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    const BlockDone done = Read(read);
    lock.lock();
    finished_.push_back(done);
    n_finished_.store(finished_.size(), std::memory_order_relaxed);
    has_finished_.notify_one();
  }
}

BlockDone PreadReader::Read(const BlockRead& read) const {
  const int fd = files_[read.file].fd.get();
  BlockDone done{.tag = read.tag, .error = 0, .bytes = 0};
  while (done.bytes < read.to.size()) {
    const std::span<std::byte> rest = read.to.subspan(done.bytes);
    const ssize_t n =
        ::pread(fd, rest.data(), rest.size(), static_cast<off_t>(read.offset + done.bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) done.error = errno;
    if (n <= 0) break;
    done.bytes += static_cast<uint64_t>(n);
    if (done.bytes % block() != 0) break;  // the end of the file: no aligned read can go on here
  }
  files_.DropCache(read.file, read.offset, read.to.size());
  return done;
}

}  // namespace

Result<std::unique_ptr<BlockReader>> OpenPreadReader(const std::vector<std::string>& paths,
                                                     const PreadOptions& options) {
  const unsigned threads = std::clamp(options.threads, 1U, 256U);
  const size_t capacity = std::clamp<size_t>(options.queue_depth, 1, size_t{2} * threads);
  TRY(OpenFiles files, OpenFiles::Open(paths, options.least_block));
  auto reader = std::make_unique<PreadReader>(std::move(files), capacity);
  TRY_STATUS(reader->StartThreads(threads));
  return reader;
}

}  // namespace moestro
