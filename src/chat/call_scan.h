// SPDX-License-Identifier: MIT
// Reads the calls of tools in an answer that is still being written. A pure function of the text so
// far: call it again with more text (AnswerReader::IsWorthALook).
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
  // JSON text of an object; while the call is not whole, a beginning of that text. More text never
  // changes the beginning.
  std::string arguments;
  bool is_named = false;  // the name is complete, and arguments follow
  bool is_whole = false;
};

struct CallScan {
  Scan state = Scan::kOpen;
  std::vector<ScannedCall> calls;  // all but the last are whole
  size_t whole_end = 0;            // end of the last whole call; 0: no call is whole
  size_t end = 0;                  // end of the calls, or place of the break
  // The beginning is one that a grammar, if any, holds (call_rules.h).
  bool is_held = true;
};

// `text` begins with one of OpeningMarks(style). REQUIRES: the calls' shape is neither kNone
// nor kChannels.
CallScan ScanCalls(const AnswerStyle& style, std::string_view text);

// A call's arguments alone, from their opening brace on.
CallScan ScanArguments(std::string_view name, std::string_view text);

// The beginning of a bare call of the tool where a grammar is to hold it.
std::string BareBegin(std::string_view tool);
// Beginnings of any tool's call in channels: the recipient stands behind the channel, or before it.
std::vector<std::string> ChannelCallBegins();

// Whether a tool of this name can be called in every style.
bool IsToolName(std::string_view name);

// Texts with which a call may begin anywhere in an answer: its mark or, for a known tool, the text
// behind the mark.
std::vector<std::string> OpeningMarks(const AnswerStyle& style);

}  // namespace moestro
