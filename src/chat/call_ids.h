// SPDX-License-Identifier: MIT
// Ids of calls: the ones in answers, and the ones that some templates need.
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

// Gives every call an id that contains its tool's name, BEGIN NAME:NUMBER, for templates that write
// the id alone, and gives every tool's answer its call's id. Numbers count all calls; ids of this
// form stay as they are. A turn more changes no id before it. Without an id an answer belongs to
// the first call before it that has none.
void NumberIds(std::vector<ChatTurn>& turns, std::string_view begin);

}  // namespace moestro
