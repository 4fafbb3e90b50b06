// SPDX-License-Identifier: MIT
// Finding about a machine: one sentence, and what to do about it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moestro {

enum class Verdict : uint8_t {
  kOk,
  kWarn,  // works, but slower or with less than possible
  kBad,   // prevents the use of a model
};

// "ok", "warn", "bad".
constexpr std::string_view NameOf(Verdict verdict) {
  if (verdict == Verdict::kOk) return "ok";
  return verdict == Verdict::kWarn ? "warn" : "bad";
}

struct Finding {
  std::string check;  // a row of docs/doctor.md: "io_uring"
  Verdict verdict = Verdict::kOk;
  std::string text;         // one line
  std::string remedy = {};  // one line; empty only if all is well
};

using Findings = std::vector<Finding>;

inline Finding Fine(std::string check, std::string text) {
  return {.check = std::move(check), .verdict = Verdict::kOk, .text = std::move(text)};
}
inline Finding Warning(std::string check, std::string text, std::string remedy) {
  return {std::move(check), Verdict::kWarn, std::move(text), std::move(remedy)};
}
inline Finding Fault(std::string check, std::string text, std::string remedy) {
  return {std::move(check), Verdict::kBad, std::move(text), std::move(remedy)};
}

}  // namespace moestro
