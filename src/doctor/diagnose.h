// SPDX-License-Identifier: MIT
// Finds faults and causes of slowness of a machine, with remedies. Pure: a function of the facts
// alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "doctor/system_facts.h"

namespace moestro {

// Finding about a machine: one sentence, and what to do about it.

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

// Findings in the order of docs/doctor.md: one or more of each check for which the facts suffice.
Findings Diagnose(const SystemFacts& facts);

// The worst verdict of the findings; kOk if the list is empty.
Verdict WorstOf(const Findings& findings);

// Findings about a model's place: the right to read it, and the speed of reading. Pure.

// "model", "access", "direct reads", "file system", "disk".
void AddModelFindings(const ModelFacts& model, Findings& findings);

}  // namespace moestro
