// SPDX-License-Identifier: MIT
// A conversation on a terminal: with the model's chat template, or, where it has none, text by
// text.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "chat/chat_format.h"
#include "cli/output.h"
#include "cli/terminal_session.h"
#include "text/generate.h"

namespace moestro {

struct ChatOptions {
  std::optional<std::string> system;  // the system message
  std::optional<std::string> first;   // the first user message; otherwise it is asked for
  bool asks_on = true;                // more messages come from standard input
  GenerateOptions generate;
};

// Until the end of the input, /exit, an interrupt while waiting for input, or a closed output.
// A message that no longer fits, or that the template does not write, is refused with a notice, and
// the conversation goes on without it.
Status RunChat(TerminalSession& session, const ChatFormat& format, const ChatOptions& options,
               Output& output);

// Each line from standard input begins a text of its own, which the model continues.
Status RunLines(TerminalSession& session, const GenerateOptions& options, Output& output);

}  // namespace moestro
