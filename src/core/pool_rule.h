// SPDX-License-Identifier: MIT
// Which pools of consecutive positions a row attends to, where an indexer chooses them. Pure.
#pragma once

#include <cstdint>

namespace moestro {

// Pool p is positions [p * n_pool, (p + 1) * n_pool). A row with n positions attends to `n_chosen`
// pools before Tail(n), and to all positions from there on. As long as there are no more pools than
// that before the tail, the row attends to all positions.
struct PoolRule {
  uint32_t n_pool = 1;
  uint32_t n_chosen = 0;
  // Pools of the tail, the row's own among them, whether full or not; 0: the tail is what lies
  // behind the last full pool.
  uint32_t n_last = 0;

  // The first position of the tail. REQUIRES: n > 0 if n_last > 0.
  constexpr uint32_t Tail(uint32_t n) const {
    if (n_last == 0) return n / n_pool * n_pool;
    const uint32_t own = (n - 1) / n_pool;
    return own < n_last ? 0 : (own + 1 - n_last) * n_pool;
  }
  // Pools among which a row chooses.
  constexpr uint32_t Pools(uint32_t n) const { return Tail(n) / n_pool; }
  constexpr bool Chooses(uint32_t n) const { return Pools(n) > n_chosen; }
  // Positions that a row attends to. REQUIRES: Chooses(n).
  constexpr uint32_t Attended(uint32_t n) const { return n_chosen * n_pool + n - Tail(n); }
  // The most that any row attends to that chooses.
  constexpr uint32_t MostAttended() const {
    return n_last == 0 ? (n_chosen + 1) * n_pool - 1 : (n_chosen + n_last) * n_pool;
  }
};

}  // namespace moestro
