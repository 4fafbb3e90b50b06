// SPDX-License-Identifier: MIT
#include "text/conversation.h"

#include <utility>

#include "base/json.h"

namespace moestro {

Conversation::Conversation(Session& session, std::optional<std::string> system)
    : session_(session), system_(std::move(system)) {
  Clear();
  Recall();
}

void Conversation::Clear() {
  turns_.clear();
  if (system_) turns_.push_back({"system", *system_});
}

Result<std::vector<Token>> Conversation::Ask(std::string message) {
  turns_.push_back({"user", std::move(message)});
  Result<std::vector<Token>> tokens = std::vector<Token>();
  const auto text = session_.vocab().ApplyChatTemplate(turns_, true);
  tokens = text ? session_.Tokenize(*text, true) : std::unexpected(text.error());
  if (tokens && tokens->size() >= session_.limit().n_ctx) {
    tokens = Fail(Errc::kInvalidRequest,
                  "this does not fit: with all before it, it has more tokens than the context "
                  "holds, {}",
                  session_.limit().n_ctx);
  }
  if (!tokens) turns_.pop_back();
  return tokens;
}

void Conversation::Answered(std::string text) {
  turns_.push_back({"assistant", std::move(text)});
  Remember();
}

void Conversation::Recall() {
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

void Conversation::Remember() {
  Json notes = Json::Array();
  for (const ChatMessage& turn : turns_) {
    notes.Push(std::move(Json::Object().Set("role", turn.role).Set("content", turn.content)));
  }
  session_.notes() = notes.Dump();
}

}  // namespace moestro
