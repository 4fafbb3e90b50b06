// SPDX-License-Identifier: MIT
#include "kit/rate_watch.h"

namespace moestro {

void RateWatch::Observe(double amount, double seconds) {
  if (!(amount > 0.0) || !(seconds > 0.0)) return;  // also for NaN
  amount_ += amount;
  seconds_ += seconds;
  if (seconds_ < kWindowSeconds) return;
  const double rate = amount_ / seconds_;
  amount_ = seconds_ = 0.0;
  EndWindow(rate);
}

void RateWatch::EndWindow(double rate) {
  constexpr uint32_t kInARow = 2;
  constexpr double kDrift = 0.02;  // of a window that is slower than usual
  last_ = rate;
  const bool is_changed = is_low_ ? rate >= kRisen * usual_ : rate < kFallen * usual_;
  changed_ = is_changed ? changed_ + 1 : 0;
  if (changed_ == kInARow) {
    is_low_ = !is_low_;
    changed_ = 0;
  }
  // Neither a fall nor the windows that show one move the usual rate.
  if (is_low_ || changed_ > 0) return;
  usual_ = rate > usual_ ? rate : usual_ + kDrift * (rate - usual_);
}

}  // namespace moestro
