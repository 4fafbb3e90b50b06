// SPDX-License-Identifier: MIT
#include "offline/in_order.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/caught.h"
#include "base/check.h"
#include "base/format.h"

namespace moestro {
namespace {

// Queue of pieces between the threads that make them and the thread that takes them.
class PieceLine {
 public:
  PieceLine(uint64_t n, uint32_t threads, const MakePiece& make)
      : n_(n), make_(make), made_(size_t{2} * threads) {}
  PieceLine(const PieceLine&) = delete;
  PieceLine& operator=(const PieceLine&) = delete;
  ~PieceLine();

  Status Start(uint32_t threads);
  // Waits for the next piece and returns it. REQUIRES: not all have been taken.
  Result<std::vector<std::byte>> Take();

 private:
  using Bytes = std::vector<std::byte>;
  using Made = std::optional<Result<Bytes>>;
  void Work();

  const uint64_t n_;
  const MakePiece& make_;

  // Never held while a piece is made or taken.
  std::mutex mutex_;
  std::condition_variable has_room_;
  std::condition_variable has_piece_;
  std::vector<Made> made_;    // piece i at i % size; guarded by mutex_
  uint64_t next_ = 0;         // to be made; guarded by mutex_
  uint64_t taken_ = 0;        // guarded by mutex_
  bool is_stopping_ = false;  // guarded by mutex_

  std::vector<std::thread> threads_;  // joined by the destructor
};

Status PieceLine::Start(uint32_t threads) {
  const auto useful = static_cast<uint32_t>(std::min<uint64_t>(threads, n_));
  try {
    for (uint32_t i = 0; i < useful; ++i) {
      threads_.emplace_back([this] { Work(); });
      pthread_setname_np(threads_.back().native_handle(), Format("moestro-qt-{}", i).c_str());
    }
  } catch (const std::system_error& e) {
    return Fail(Errc::kNoMemory, "cannot start {} threads: {}", useful, e.what());
  }
  return {};
}

PieceLine::~PieceLine() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  has_room_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void PieceLine::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    has_room_.wait(lock,
                   [this] { return is_stopping_ || next_ == n_ || next_ < taken_ + made_.size(); });
    if (is_stopping_ || next_ == n_) return;
    const uint64_t piece = next_++;
    lock.unlock();
    auto made = Caught([&] { return make_(piece); },
                       [](std::string_view why) -> Result<Bytes> {
                         return Fail(Errc::kNoMemory, "a thread failed: {}", why);
                       });
    lock.lock();
    made_[piece % made_.size()] = std::move(made);
    has_piece_.notify_one();
  }
}

Result<std::vector<std::byte>> PieceLine::Take() {
  std::unique_lock lock(mutex_);
  CHECK(taken_ < n_);
  Made& made = made_[taken_ % made_.size()];
  has_piece_.wait(lock, [&made] { return made.has_value(); });
  auto piece = *std::exchange(made, std::nullopt);
  ++taken_;
  has_room_.notify_all();
  return piece;
}

}  // namespace

Status RunInOrder(uint64_t n, uint32_t threads, const MakePiece& make, const TakePiece& take) {
  CHECK(threads > 0);
  PieceLine line(n, threads, make);
  TRY_STATUS(line.Start(threads));
  for (uint64_t i = 0; i < n; ++i) {
    TRY(const auto piece, line.Take());
    TRY_STATUS(take(piece));
  }
  return {};
}

}  // namespace moestro
