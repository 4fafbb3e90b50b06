// SPDX-License-Identifier: MIT
// A conversation on a terminal: with the model's chat template, or line by line without one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "chat/chat_format.h"
#include "cli/report.h"
#include "cli/terminal_session.h"
#include "text/text_request.h"

namespace moestro {

// Input of a person: escapes in flags, lines at a terminal.

// \n \t \r \\ \" \' \xHH as in C; other text does not change (llama.cpp's rule).
std::string ProcessEscapes(std::string_view text);

// One line of standard input without its newline; nullopt at its end and after an interrupt.
std::optional<std::string> ReadLine();
// Whether ReadLine() returns at once, with a line or at the end. Always true where standard input
// is not a terminal.
bool HasInput();

struct ChatOptions {
  std::optional<std::string> system;  // the system message
  std::optional<std::string> first;   // the first user message; nullopt: read from standard input
  bool asks_on = true;                // more messages come from standard input
  GenerateOptions generate;
};

// Runs until the end of the input, /exit, an interrupt while waiting for input, or a closed output.
// A message that does not fit, or that the template refuses, gives a notice, and the conversation
// goes on without it.
Status RunChat(TerminalSession& session, const ChatFormat& format, const ChatOptions& options,
               Output& output);

// Each line from standard input begins a new text, which the model continues.
Status RunLines(TerminalSession& session, const GenerateOptions& options, Output& output);

}  // namespace moestro
