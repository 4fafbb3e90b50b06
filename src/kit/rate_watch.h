// SPDX-License-Identifier: MIT
// Notices that a disk or a processor has become slower while it works, or fast again: drives, cards
// and boards that are hot slow themselves down. Pure.
//
// Work is summed up to windows of a second, and two windows in a row decide: single steps vary with
// the experts that they miss. Slow changes (a text that grows) move the usual rate along.
#pragma once

#include <cstdint>

namespace moestro {

class RateWatch {
 public:
  static constexpr double kWindowSeconds = 1.0;
  static constexpr double kFallen = 0.7;  // of the usual rate, or less
  static constexpr double kRisen = 0.9;   // of the rate before the fall, or more

  // Adds work that took so many seconds, both above zero; others are ignored.
  void Observe(double amount, double seconds);
  // The work is of another kind from here on: rates before it say nothing.
  void Restart() { *this = RateWatch(); }

  bool is_low() const { return is_low_; }
  // The last window's share of the usual rate, of that before the fall while is_low(). 1: not
  // known.
  double share() const { return usual_ > 0.0 && last_ > 0.0 ? last_ / usual_ : 1.0; }

 private:
  void EndWindow(double rate);

  double amount_ = 0.0;   // of the window under way
  double seconds_ = 0.0;  // of the window under way
  double last_ = 0.0;     // rate of the last window; 0: none has ended
  double usual_ = 0.0;    // the highest rate of late
  uint32_t changed_ = 0;  // windows in a row that are low while is_low_ is false, or the reverse
  bool is_low_ = false;
};

}  // namespace moestro
