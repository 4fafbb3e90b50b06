// SPDX-License-Identifier: MIT
#include "commands/chat.h"

#include <utility>
#include <vector>

#include "base/format.h"
#include "base/visible.h"
#include "commands/text_input.h"
#include "text/conversation.h"

namespace moestro {
namespace {

constexpr const char* kAsk = "\n> ";

void Notice(const std::string& text) { PrintOnStderr(text + "\n"); }

// Continues `tokens` and shows the text as it comes, with a newline at its end. A failed write is
// in the output's status alone: the text is complete.
Result<Generated> Show(TerminalSession& session, const std::vector<Token>& tokens,
                       const GenerateOptions& options, Output& output) {
  Result<Generated> made = session.Continue(tokens, options, [&](std::string_view text) {
    return output.WriteGenerated(text).has_value() && !output.closed();
  });
  [[maybe_unused]] const Status ended = output.Write("\n");
  if (made && made->reason == StopReason::kContextFull) {
    Notice("(the context is full; --ctx sets its size)");
  }
  return made;
}

// The next message: nullopt ends the conversation. Until the user has written a line, the engine
// reads recalled experts.
Result<std::optional<std::string>> Ask(TerminalSession& session, Output& output) {
  while (true) {
    TRY_STATUS(output.Write(kAsk));
    while (!HasInput() && session.WorkWhileIdle()) {
    }
    if (!session.WaitForLine()) return std::nullopt;
    std::optional<std::string> line = ReadLine();
    if (!line || *line == "/exit" || output.closed()) return std::nullopt;
    if (!line->empty()) return line;
  }
}

// Answers one message. Returns the reason if the message could not be asked; the conversation is
// then unchanged.
Result<std::optional<Error>> Say(Conversation& conversation, std::string message,
                                 TerminalSession& session, const GenerateOptions& options,
                                 Output& output) {
  const auto tokens = conversation.Ask(std::move(message));
  if (!tokens) {
    Notice(Format("({}; /clear starts a new conversation)", tokens.error().message));
    return tokens.error();
  }
  TRY(Generated made, Show(session, *tokens, options, output));
  conversation.Answered(std::move(made.text));
  TRY_STATUS(output.status());
  return std::nullopt;
}

}  // namespace

Status RunChat(TerminalSession& session, const ChatFormat& format, const ChatOptions& options,
               Output& output) {
  Conversation conversation(session.session(), format, options.system);
  const auto say = [&](std::string message) {
    return Say(conversation, std::move(message), session, options.generate, output);
  };
  if (options.first) {
    TRY(std::optional<Error> unsaid, say(*options.first));
    if (unsaid && !options.asks_on) return std::unexpected(*std::move(unsaid));
  }
  if (options.asks_on) Notice("(/clear starts a new conversation, /exit or Ctrl-D ends it)");
  while (options.asks_on && !output.closed()) {
    TRY(std::optional<std::string> line, Ask(session, output));
    if (!line) break;
    if (*line == "/clear") {
      conversation.Clear();
      continue;
    }
    TRY_STATUS(say(*std::move(line)));
  }
  return {};
}

Status RunLines(TerminalSession& session, const GenerateOptions& options, Output& output) {
  Notice("(this model has no chat template: it continues each line you write; Ctrl-D ends)");
  while (!output.closed()) {
    TRY(const std::optional<std::string> line, Ask(session, output));
    if (!line) break;
    TRY(const std::vector<Token> tokens, session.session().Tokenize(*line));
    if (tokens.size() > session.session().limit().n_ctx) {
      Notice(Format("(this does not fit: it has more tokens than the context holds, {})",
                    session.session().limit().n_ctx));
      continue;
    }
    TRY_STATUS(output.WriteGenerated(*line));
    TRY_STATUS(Show(session, tokens, options, output));
    TRY_STATUS(output.status());
  }
  return {};
}

}  // namespace moestro
