// SPDX-License-Identifier: MIT
// Plain values of web requests: a server's address, a reply's head, when to try again. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace moestro {

// Properties of a server's address. Pure.

// "https://host:port" in lower case; nullopt: not http or https, no host, or user information,
// which is not taken. A port that is the scheme's own is left out.
std::optional<std::string> OriginOf(std::string_view address);
// The address is http and not https.
bool IsPlainHttp(std::string_view address);
// localhost, 127.x.x.x or [::1].
bool IsLoopback(std::string_view address);

// The head of a reply and the parts of a body, as plain values.

// Bytes [begin, end) of a body. Not empty.
struct ByteRange {
  uint64_t begin = 0;
  uint64_t end = 0;

  uint64_t size() const { return end - begin; }
  bool operator==(const ByteRange&) const = default;
};

// The status line and headers of a reply.
struct WebHead {
  int status = 0;
  std::map<std::string, std::string> headers = {};  // names in lower case; of equal ones the last
  std::string redirect = {};  // where a 3xx leads, as a whole address; empty: nowhere

  // nullptr: no such header. `name`: lower case.
  const std::string* Find(const std::string& name) const {
    const auto found = headers.find(name);
    return found != headers.end() ? &found->second : nullptr;
  }
};

// Decides whether a failed request is tried again, and after how many seconds. Pure.

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
