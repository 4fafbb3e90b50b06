// SPDX-License-Identifier: MIT
#include "devices/copier.h"

#include <string_view>
#include <utility>

#include "base/result.h"

namespace moestro {

Copier::Copier(std::function<bool()> fails, Clock clock)
    : fails_(std::move(fails)), clock_(std::move(clock)), thread_([this] { Run(); }) {}

Copier::~Copier() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  asked_.notify_one();
  thread_.join();
}

uint64_t Copier::Ask(Copy copy) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    copies_.push_back(std::move(copy));
    number = ++n_asked_;
  }
  asked_.notify_one();
  return number;
}

bool Copier::is_done(uint64_t number) const {
  const std::lock_guard lock(mutex_);
  return n_done_ >= number;
}

bool Copier::Wait(uint64_t first, uint64_t last) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return n_done_ >= last; });
  return std::erase_if(failed_, [&](uint64_t n) { return n >= first && n <= last; }) == 0;
}

Copier::Made Copier::made() const {
  const std::lock_guard lock(mutex_);
  return made_;
}

void Copier::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    asked_.wait(lock, [&] { return ends_ || !copies_.empty(); });
    if (copies_.empty()) return;
    const Copy copy = std::move(copies_.front());
    copies_.pop_front();
    lock.unlock();
    const bool is_refused =
        fails_ && Caught([&] { return fails_(); }, [](std::string_view) { return true; });
    const double start = clock_();
    const bool has_failed = is_refused || !copy.make();
    const double seconds = clock_() - start;
    lock.lock();
    ++n_done_;
    if (has_failed) {
      failed_.push_back(n_done_);
    } else {
      made_ = {.copies = made_.copies + 1,
               .bytes = made_.bytes + copy.bytes,
               .seconds = made_.seconds + seconds};
    }
    done_.notify_all();
  }
}

}  // namespace moestro
