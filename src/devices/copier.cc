// SPDX-License-Identifier: MIT
#include "devices/copier.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace moestro {

Copier::Copier(std::function<bool()> fails, Land land, Clock clock)
    : fails_(std::move(fails)),
      land_(std::move(land)),
      clock_(std::move(clock)),
      thread_([this] { Run(); }) {}

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

Copier::UnderWay Copier::Begin(const Copy& copy) {
  const bool is_refused =
      fails_ && Caught([&] { return fails_(); }, [](std::string_view) { return true; });
  const double begun = clock_();
  if (is_refused) {
    return {.number = Fail(Errc::kDevice, "a copy failed on purpose"), .begun = begun};
  }
  return {.number = copy.begin(), .bytes = copy.bytes, .begun = begun};
}

// Waits until the first copy under way has landed, and counts it. REQUIRES: lock is held.
void Copier::LandFirst(std::unique_lock<std::mutex>& lock) {
  const UnderWay first = std::move(under_way_.front());
  under_way_.pop_front();
  lock.unlock();
  const bool has_landed = first.number && (*first.number == 0 || land_(*first.number));
  const double end = clock_();
  const double seconds = end - std::max(first.begun, std::exchange(last_end_, end));
  lock.lock();
  ++n_done_;
  if (!has_landed) {
    failed_.push_back(n_done_);
  } else {
    made_ = {.copies = made_.copies + 1,
             .bytes = made_.bytes + first.bytes,
             .seconds = made_.seconds + seconds};
  }
  done_.notify_all();
}

void Copier::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const bool can_begin = under_way_.size() < kMostUnderWay && !copies_.empty();
    if (!under_way_.empty() && (!can_begin || under_way_.front().has_ended())) {
      LandFirst(lock);
      continue;
    }
    asked_.wait(lock, [&] { return ends_ || !copies_.empty(); });
    if (copies_.empty()) return;
    const Copy copy = std::move(copies_.front());
    copies_.pop_front();
    lock.unlock();
    UnderWay begun = Begin(copy);
    lock.lock();
    under_way_.push_back(std::move(begun));
  }
}

}  // namespace moestro
