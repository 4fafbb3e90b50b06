// SPDX-License-Identifier: MIT
// Waiting inside the compute team: short waits spin, because waking a sleeping thread costs more
// than the wait; long ones give the core away.
#pragma once

#include <cstdint>
#include <thread>

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
  void Pause() {
    // About 10 us of spinning, then yield: a pread pool needs the core to finish its reads.
    if (++rounds_ < 256) {
      CpuRelax();
    } else {
      std::this_thread::yield();
    }
  }
  void Reset() { rounds_ = 0; }

 private:
  uint32_t rounds_ = 0;
};

template <class Condition>
void SpinUntil(Condition&& condition) {
  Spinner spinner;
  while (!condition()) spinner.Pause();
}

}  // namespace moestro
