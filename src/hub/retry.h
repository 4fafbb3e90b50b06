// SPDX-License-Identifier: MIT
// Decides whether a failed request is tried again, and after how many seconds. Pure.
#pragma once

#include <optional>

namespace moestro {

struct RetryPolicy {
  int most_tries = 6;            // tries without progress between them
  double first_wait = 1.0;       // seconds; each further one is twice as long
  double longest_wait = 30.0;    // seconds
  double longest_asked = 330.0;  // most seconds of a Retry-After; the hub counts in 5 minutes
};

// Counts failures in a row.
class Retries {
 public:
  explicit Retries(const RetryPolicy& policy) : policy_(policy) {}

  // Seconds to wait before the next try; nullopt: this was the last. `asked`: Retry-After, seconds.
  std::optional<double> AfterFailure(std::optional<double> asked);
  void Progressed() { failures_ = 0; }

 private:
  RetryPolicy policy_;
  int failures_ = 0;
};

// Whether a status is a passing one: too many requests, a server that is overloaded or restarts.
constexpr bool IsPassing(int status) {
  return status == 408 || status == 425 || status == 429 || (status >= 500 && status != 501);
}

}  // namespace moestro
