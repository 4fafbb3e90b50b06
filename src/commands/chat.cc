// SPDX-License-Identifier: MIT
#include "commands/chat.h"

#include <poll.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "base/terminal.h"
#include "base/text.h"
#include "text/conversation.h"

namespace moestro {
namespace {

std::optional<char> SimpleEscape(char letter) {
  switch (letter) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case '\\':
    case '"':
    case '\'':
      return letter;
    default:
      return std::nullopt;
  }
}

std::optional<char> HexEscape(std::string_view digits) {
  if (digits.size() < 2) return std::nullopt;
  unsigned value = 0;
  const char* end = digits.begin() + 2;
  const auto [stop, error] = std::from_chars(digits.begin(), end, value, 16);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return static_cast<char>(value);
}

}  // namespace

std::string ProcessEscapes(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) {
      if (const auto simple = SimpleEscape(text[i + 1])) {
        result += *simple;
        i += 1;
        continue;
      }
      const auto hex = text[i + 1] == 'x' ? HexEscape(text.substr(i + 2)) : std::nullopt;
      if (hex) {
        result += *hex;
        i += 3;
        continue;
      }
    }
    result += text[i];
  }
  return result;
}

bool HasInput() {
  if (isatty(STDIN_FILENO) == 0) return true;
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  return ::poll(&input, 1, 0) != 0;
}

std::optional<std::string> ReadLine() {
  char* line = nullptr;
  size_t capacity = 0;
  const ssize_t n = getline(&line, &capacity, stdin);
  const std::unique_ptr<char, void (*)(void*)> owner(line, &std::free);
  if (n < 0) return std::nullopt;
  std::string_view text(line, static_cast<size_t>(n));
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  return std::string(text);
}

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
