// SPDX-License-Identifier: MIT
#include "text/conversation.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "chat/chat_format.h"

namespace moestro {
namespace {

ChatTurn Turn(std::string role, std::string content) {
  ChatTurn turn;
  turn.role = std::move(role);
  turn.content = std::move(content);
  return turn;
}

}  // namespace

Conversation::Conversation(Session& session, const ChatFormat& format,
                           std::optional<std::string> system)
    : session_(session), format_(format), system_(std::move(system)) {
  Clear();
  Recall();
}

void Conversation::Clear() {
  turns_.clear();
  if (system_) turns_.push_back(Turn("system", *system_));
}

Result<std::vector<Token>> Conversation::Ask(std::string message) {
  turns_.push_back(Turn("user", std::move(message)));
  ChatInput input;
  input.turns = turns_;
  Result<std::vector<Token>> tokens = Tokens(input);
  if (tokens && tokens->size() >= session_.limit().n_ctx) {
    tokens = Fail(Errc::kInvalidRequest,
                  "this does not fit: with all before it, it has more tokens than the context "
                  "holds, {}",
                  session_.limit().n_ctx);
  }
  if (!tokens) {
    turns_.pop_back();
  } else {
    session_.KeepAt(SharedWithLater(input, *tokens));
  }
  return tokens;
}

// Positions at which likely later conversations part from these tokens, for checkpoints. A
// conversation that cannot be rendered gives none.
std::vector<uint32_t> Conversation::SharedWithLater(const ChatInput& input,
                                                    const std::vector<Token>& tokens) const {
  std::vector<uint32_t> positions;
  if (!session_.engine().facts().has_states) return positions;
  for (const ChatInput& other : LikelyBeginnings(input)) {
    const Result<std::vector<Token>> others = Tokens(other);
    if (others) positions.push_back(static_cast<uint32_t>(CommonPrefix(*others, tokens)));
  }
  std::ranges::sort(positions);
  return positions;
}

Result<std::vector<Token>> Conversation::Tokens(const ChatInput& input) const {
  TRY(const RenderedChat chat, format_.Render(input, {}));
  return session_.Tokenize(chat.prompt);
}

void Conversation::Answered(std::string text) {
  turns_.push_back(Turn("assistant", std::move(text)));
  Remember();
}

void Conversation::Recall() {
  const Result<Json> notes = Json::Parse(session_.notes());
  if (!notes) return;  // none, or of a text that was no conversation
  std::vector<ChatTurn> turns;
  for (size_t i = 0; i < notes->size(); ++i) {
    const auto turn = notes->At(i);
    const auto role = turn->Find("role");
    const auto content = turn->Find("content");
    if (!role || !role->text() || !content || !content->text()) return;
    turns.push_back(Turn(*role->text(), *content->text()));
  }
  if (!turns.empty()) turns_ = std::move(turns);
}

void Conversation::Remember() {
  Json notes = Json::Array();
  for (const ChatTurn& turn : turns_) {
    notes.Push(std::move(Json::Object().Set("role", turn.role).Set("content", turn.content)));
  }
  session_.notes() = notes.Dump();
}

ChatModel ChatModelOf(const Vocab& vocab, std::string template_text) {
  return {.template_text = std::move(template_text),
          .bos = vocab.begin_text(),
          .eos = vocab.end_text(),
          .has_chatml_marks = vocab.has_token("<|im_start|>") && vocab.has_token("<|im_end|>")};
}

}  // namespace moestro
