// SPDX-License-Identifier: MIT
// Waiting inside the compute team: short waits spin, because waking a sleeping thread costs more
// than the wait. In long waits a thread sleeps (base/wait_word.h). A thread never yields: beside a
// busy program a yield gives away a time slice of some milliseconds for a wait of microseconds.
#pragma once

#include <chrono>
#include <cstdint>

namespace moestro {

inline void CpuRelax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Spinner {
 public:
  // Spins a little. False: the thread has spun long enough.
  bool Spin() {
    // Some microseconds (64 pauses take 1 to 3): barriers between the nodes of a layer are over in
    // less, so the thread checks again at once (docs/decisions/0036).
    constexpr uint32_t kShortRounds = 64;
    if (rounds_ < kShortRounds) {
      ++rounds_;
      CpuRelax();
      return true;
    }
    for (int i = 0; i < 16; ++i) CpuRelax();
    const auto now = std::chrono::steady_clock::now();
    if (rounds_++ == kShortRounds) begun_ = now;
    return now - begun_ < std::chrono::microseconds(30);
  }
  void Reset() { rounds_ = 0; }

 private:
  uint32_t rounds_ = 0;
  std::chrono::steady_clock::time_point begun_;
};

}  // namespace moestro
