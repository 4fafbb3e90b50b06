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

// Gives every call and every tool's answer a short id: equal ids stay equal, different ones
// different, short ones as they are. A turn more changes no id before it. A call without an id gets
// one, and an answer without an id belongs to the first call before it that came without one.
void ShortenIds(std::vector<ChatTurn>& turns);

// Gives every call an id that contains its tool's name, BEGIN NAME:NUMBER, for templates that write
// the id alone, and gives every tool's answer its call's id. Numbers count all calls; ids of this
// form stay as they are. A turn more changes no id before it. An answer without an id belongs to
// the first call before it that came without one.
void NumberIds(std::vector<ChatTurn>& turns, std::string_view begin);

}  // namespace moestro
