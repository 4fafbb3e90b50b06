// SPDX-License-Identifier: MIT
#include "chat/channel_effort.h"

#include "base/json.h"

namespace moestro {

std::string WithChannelEffort(std::string_view arguments) {
  constexpr std::string_view kEffort = "reasoning_effort";
  auto parsed = Json::Parse(arguments);
  if (!parsed || parsed->view().kind() != JsonKind::kObject) return std::string(arguments);
  const auto given = parsed->Find(kEffort);
  const auto thinks = parsed->Find("enable_thinking");
  const bool is_off = !given && thinks && thinks->boolean() == false;
  const std::string effort = given ? given->text().value_or("") : "";
  std::string_view known;
  if (is_off || effort == "none" || effort == "minimal") known = "low";
  if (effort == "xhigh" || effort == "max") known = "high";
  if (known.empty()) return std::string(arguments);
  parsed->Set(kEffort, known);
  return parsed->Dump();
}

}  // namespace moestro
