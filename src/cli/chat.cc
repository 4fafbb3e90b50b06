// SPDX-License-Identifier: MIT
#include "cli/chat.h"

#include <cstdio>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/json.h"
#include "cli/text_input.h"
#include "model/vocab.h"

namespace moestro {
namespace {

constexpr const char* kAsk = "\n> ";

void Notice(const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }

// Continues `tokens` and shows the text as it comes, with a newline at its end.
Result<Generated> Show(Session& session, const std::vector<Token>& tokens,
                       const GenerateOptions& options, Output& output) {
  Status written;
  Result<Generated> made = session.Continue(tokens, options, [&](std::string_view text) {
    written = output.Write(text);
    return written.has_value() && !output.closed();
  });
  TRY_STATUS(std::move(written));
  TRY_STATUS(output.Write("\n"));
  if (made && made->reason == StopReason::kContextFull) {
    Notice("(the context is full; --ctx sets its size)");
  }
  return made;
}

// The next message: nullopt ends the conversation.
Result<std::optional<std::string>> Ask(Output& output) {
  while (true) {
    TRY_STATUS(output.Write(kAsk));
    std::optional<std::string> line = ReadLine();
    if (!line || *line == "/exit" || output.closed()) return std::nullopt;
    if (!line->empty()) return line;
  }
}

class Conversation {
 public:
  Conversation(Session& session, const ChatOptions& options, Output& output)
      : session_(session), options_(options), output_(output) {
    Clear();
    Recall();
  }

  void Clear() {
    turns_.clear();
    if (options_.system) turns_.push_back({"system", *options_.system});
  }

  // Answers one message. False: it did not fit, the conversation is as before.
  Result<bool> Say(std::string message) {
    turns_.push_back({"user", std::move(message)});
    TRY(const std::string text, session_.vocab().ApplyChatTemplate(turns_, true));
    const auto tokens = session_.Tokenize(text, true);
    if (!tokens && tokens.error().code != Errc::kInvalidRequest) {
      return std::unexpected(tokens.error());
    }
    if (!tokens || tokens->size() >= session_.engine().n_ctx()) {
      turns_.pop_back();
      Notice(tokens ? Format("(this does not fit: with all before it, it has more tokens than the "
                             "context holds, {}; /clear starts a new conversation)",
                             session_.engine().n_ctx())
                    : Format("({})", tokens.error().message));
      return false;
    }
    TRY(Generated made, Show(session_, *tokens, options_.generate, output_));
    turns_.push_back({"assistant", std::move(made.text)});
    Remember();
    return true;
  }

 private:
  // The messages of a saved conversation.
  void Recall() {
    const Result<Json> notes = Json::Parse(session_.notes());
    if (!notes) return;  // none, or of a text that was no conversation
    std::vector<ChatMessage> turns;
    for (size_t i = 0; i < notes->size(); ++i) {
      const auto turn = notes->At(i);
      const auto role = turn->Find("role");
      const auto content = turn->Find("content");
      if (!role || !role->text() || !content || !content->text()) return;
      turns.push_back({*role->text(), *content->text()});
    }
    if (!turns.empty()) turns_ = std::move(turns);
  }
  void Remember() {
    Json notes = Json::Array();
    for (const ChatMessage& turn : turns_) {
      notes.Push(std::move(Json::Object().Set("role", turn.role).Set("content", turn.content)));
    }
    session_.notes() = notes.Dump();
  }

  Session& session_;
  const ChatOptions& options_;
  Output& output_;
  std::vector<ChatMessage> turns_;
};

}  // namespace

Status RunChat(Session& session, const ChatOptions& options, Output& output) {
  Conversation conversation(session, options, output);
  if (options.first) {
    TRY(const bool fits, conversation.Say(*options.first));
    if (!fits && !options.asks_on) {
      return Fail(Errc::kInvalidRequest, "the message does not fit the context; raise --ctx");
    }
  }
  if (options.asks_on) Notice("(/clear starts a new conversation, /exit or Ctrl-D ends it)");
  while (options.asks_on && !output.closed()) {
    TRY(std::optional<std::string> line, Ask(output));
    if (!line) break;
    if (*line == "/clear") {
      conversation.Clear();
      continue;
    }
    TRY_STATUS(conversation.Say(*std::move(line)));
  }
  return {};
}

Status RunLines(Session& session, const GenerateOptions& options, Output& output) {
  Notice("(this model has no chat template: it continues each line you write; Ctrl-D ends)");
  while (!output.closed()) {
    TRY(const std::optional<std::string> line, Ask(output));
    if (!line) break;
    TRY(const std::vector<Token> tokens, session.Tokenize(*line, false));
    if (tokens.size() > session.engine().n_ctx()) {
      Notice(Format("(this does not fit: it has more tokens than the context holds, {})",
                    session.engine().n_ctx()));
      continue;
    }
    TRY_STATUS(output.Write(*line));
    TRY_STATUS(Show(session, tokens, options, output));
  }
  return {};
}

}  // namespace moestro
