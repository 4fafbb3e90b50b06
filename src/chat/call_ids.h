// SPDX-License-Identifier: MIT
// Ids of calls: those that answers give, and those that some templates want.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_types.h"

namespace moestro {

// Follows from the seed and the call's number. "call_" and 24 letters; short: nine letters or
// digits.
std::string MakeCallId(uint64_t seed, uint32_t call, bool is_short);

// Nine letters or digits.
bool IsShortId(std::string_view id);

// Gives every call and every tool's answer a short id: equal ones stay equal, different ones
// different, short ones as they are. A turn more changes no id before it. Without an id a call gets
// one, and an answer without one belongs to the first call before it that has none.
void ShortenIds(std::vector<ChatTurn>& turns);

}  // namespace moestro
