// SPDX-License-Identifier: MIT
// Measures how long the engine thread computed beside all other threads. The rest of a step's time
// is work that more threads make no faster.
//
// Thread rule: ScopedTeamTime on any thread of the team; seconds() on the engine thread while the
// team rests.
#pragma once

#include <chrono>

namespace moestro {

class TeamTime {
 public:
  double seconds() const { return seconds_; }

 private:
  friend class ScopedTeamTime;
  double seconds_ = 0.0;
};

// Adds the time from construction to destruction to `time`, on thread 0 alone. `time` may be null.
class ScopedTeamTime {
 public:
  ScopedTeamTime(TeamTime* time, int thread) : time_(thread == 0 ? time : nullptr) {
    if (time_ != nullptr) begun_ = std::chrono::steady_clock::now();
  }
  ~ScopedTeamTime() {
    if (time_ == nullptr) return;
    time_->seconds_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  }
  ScopedTeamTime(const ScopedTeamTime&) = delete;
  ScopedTeamTime& operator=(const ScopedTeamTime&) = delete;

 private:
  TeamTime* time_;
  std::chrono::steady_clock::time_point begun_;
};

}  // namespace moestro
