// SPDX-License-Identifier: MIT
// Requests that a test expects to be read, and their turns as lines.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "api/api_request.h"

namespace moestro {

inline ApiRequest ParsedAs(ApiKind kind, const std::string& body,
                           ApiPurpose purpose = ApiPurpose::kAnswer) {
  auto request = ParseApiRequest(kind, body, 1000, purpose);
  if (request) return *std::move(request);
  ADD_FAILURE() << request.error().message << " in " << body;
  return {};
}

// "role: content" of each turn, with thoughts, calls and ids in brackets.
inline std::vector<std::string> Lines(const ChatInput& chat) {
  std::vector<std::string> lines;
  for (const ChatTurn& turn : chat.turns) {
    std::string line = turn.role + ": " + turn.content;
    if (!turn.reasoning.empty()) line += " (" + turn.reasoning + ")";
    for (const ToolCall& call : turn.calls)
      line += " [" + call.id + " " + call.name + call.arguments + "]";
    if (turn.role == "tool") line += " <" + turn.call_id + " " + turn.name + ">";
    lines.push_back(line);
  }
  return lines;
}

using Strings = std::vector<std::string>;

}  // namespace moestro
