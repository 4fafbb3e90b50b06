// SPDX-License-Identifier: MIT
// A number that threads of the compute team wait for. A wait spins for a while; then the thread
// sleeps in the kernel until the number changes. std::atomic::wait() yields before it sleeps:
// beside a busy program each yield costs a time slice of some milliseconds.
//
// Thread rule: any thread.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>

namespace moestro {

// Waiting inside the compute team: short waits spin, because waking a sleeping thread costs more
// than the wait. In long waits a thread sleeps (WaitWord). A thread never yields: beside a
// busy program a yield gives away a time slice of some milliseconds for a wait of microseconds.

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

class WaitWord {
 public:
  explicit WaitWord(uint32_t value = 0) : value_(value) {}
  WaitWord(const WaitWord&) = delete;
  WaitWord& operator=(const WaitWord&) = delete;

  // Acquire: a thread that reads a changed value also reads all that was written before the change.
  uint32_t load() const { return value_.load(std::memory_order_acquire); }

  // Change the value, and wake the threads that sleep. Sequentially consistent: see Sleep().
  void Store(uint32_t value) {
    value_.store(value, std::memory_order_seq_cst);
    Wake();
  }
  void Add(uint32_t n) {
    value_.fetch_add(n, std::memory_order_seq_cst);
    Wake();
  }
  void Set(uint32_t bits) {
    value_.fetch_or(bits, std::memory_order_seq_cst);
    Wake();
  }

  // Sleeps while the value is `seen`, and may end sooner.
  //
  // No wake-up is lost (tests/memory_order/wait_word_*.litmus). Four operations have one order for
  // all threads (seq_cst): a change's, on the value and then on the count of sleepers, and the two
  // here, the other way round. Either this thread finds the change, or the changing thread finds
  // the sleeper, and the kernel orders its wake beside this wait. The kernel's own load of the
  // value cannot take part: on arm64 it may come before the store of the count.
  void Sleep(uint32_t seen) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    if (value_.load(std::memory_order_seq_cst) == seen) Call(FUTEX_WAIT_PRIVATE, seen);
    // Relaxed: only the number counts, and the word's next load orders data.
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }
  // Spins, then sleeps until the value satisfies the condition.
  template <class Condition>
  void WaitUntil(Condition&& condition) {
    Spinner spinner;
    for (uint32_t seen = load(); !condition(seen); seen = load()) {
      if (!spinner.Spin()) Sleep(seen);
    }
  }

 private:
  void Wake() {
    if (sleepers_.load(std::memory_order_seq_cst) > 0) Call(FUTEX_WAKE_PRIVATE, INT_MAX);
  }
  void Call(int operation, uint32_t value) {
    static_assert(sizeof(value_) == sizeof(uint32_t) && decltype(value_)::is_always_lock_free);
    syscall(SYS_futex, &value_, operation, value, nullptr, nullptr, 0);
  }

  std::atomic<uint32_t> value_;
  std::atomic<uint32_t> sleepers_{0};
};

}  // namespace moestro
