// SPDX-License-Identifier: MIT
// How long the engine thread computed beside all other threads: what is left of a step's time is
// work that more threads make no faster.
//
// Thread rule: TeamShare on any thread of the team, for thread 0's time alone; seconds() on the
// engine thread while the team rests.
#pragma once

#include <chrono>

namespace moestro {

class TeamTime {
 public:
  double seconds() const { return seconds_; }

 private:
  friend class TeamShare;
  double seconds_ = 0.0;
};

// While it lives, `thread` computes its share of work that all threads have a part of. time may be
// null.
class TeamShare {
 public:
  TeamShare(TeamTime* time, int thread) : time_(thread == 0 ? time : nullptr) {
    if (time_ != nullptr) begun_ = std::chrono::steady_clock::now();
  }
  ~TeamShare() {
    if (time_ == nullptr) return;
    time_->seconds_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  }
  TeamShare(const TeamShare&) = delete;
  TeamShare& operator=(const TeamShare&) = delete;

 private:
  TeamTime* time_;
  std::chrono::steady_clock::time_point begun_;
};

}  // namespace moestro
