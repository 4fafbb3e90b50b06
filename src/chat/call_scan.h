// SPDX-License-Identifier: MIT
// Reads the calls of tools in an answer that is still being written. A pure function of the text so
// far: it is asked again when more has come (AnswerReader::IsWorthALook).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "chat/answer_style.h"
#include "chat/json_scan.h"

namespace moestro {

struct ScannedCall {
  std::string name;
  // JSON text of an object; while the call is not whole, a beginning of it. More text never changes
  // what is there already.
  std::string arguments;
  bool is_named = false;  // the name is known, and that arguments follow
  bool is_whole = false;
};

struct CallScan {
  Scan state = Scan::kOpen;
  std::vector<ScannedCall> calls;  // all but the last are whole
  size_t whole_end = 0;            // where the last whole call ends; 0: there is none
  size_t end = 0;                  // where all ended, or broke
  // It begins as calls do that a grammar holds (call_rules.h), if there is one.
  bool is_held = true;
};

// `text` begins with one of OpeningMarks(style). REQUIRES: the calls' shape is neither kNone
// nor kChannels.
CallScan ScanCalls(const AnswerStyle& style, std::string_view text);

// A call's arguments alone, from their opening brace on.
CallScan ScanArguments(std::string_view name, std::string_view text);

// How a bare call of the tool begins where a grammar is to hold it.
std::string BareBegin(std::string_view tool);
// The same in channels, for any tool: the recipient stands behind the channel, or before it.
std::vector<std::string> ChannelCallBegins();

// Whether a tool of this name can be called in every style.
bool IsToolName(std::string_view name);

// Where a call may begin anywhere in an answer: at its mark or, of a known tool, at what follows
// the mark.
std::vector<std::string> OpeningMarks(const AnswerStyle& style);

}  // namespace moestro
