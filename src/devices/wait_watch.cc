// SPDX-License-Identifier: MIT
#include "devices/wait_watch.h"

#include <chrono>

namespace moestro {

WaitWatch::WaitWatch(double seconds, std::function<void()> tell)
    : seconds_(seconds), tell_(std::move(tell)), thread_([this] { Watch(); }) {}

WaitWatch::~WaitWatch() {
  {
    const std::lock_guard lock(mutex_);
    shall_end_ = true;
  }
  ends_.notify_one();
  thread_.join();
}

// Looks a few times in the seconds that a wait may last: a wait that was there as often in a row is
// as old.
void WaitWatch::Watch() {
  constexpr int kLooks = 4;
  const std::chrono::duration<double> between(seconds_ / kLooks);
  uint64_t seen = 0;
  int looks = 0;
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, between, [this] { return shall_end_; })) {
    const uint64_t marks = marks_.load();
    looks = marks % 2 == 1 && marks == seen ? looks + 1 : 0;
    seen = marks;
    if (looks == kLooks) tell_();
  }
}

}  // namespace moestro
