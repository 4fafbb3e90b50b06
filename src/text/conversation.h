// SPDX-License-Identifier: MIT
// Messages in turn, written out as the model takes a conversation (chat/chat_format.h). What a new
// message has in common with the sequence so far is not evaluated again (Session::Continue).
//
// Thread rule: the engine's thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/chat_format.h"
#include "chat/chat_types.h"
#include "core/ids.h"
#include "model/vocab.h"
#include "text/session.h"

namespace moestro {

class Conversation {
 public:
  // Takes up the messages that were saved with the session's text, if there are any; else begins
  // with `system`, if there is one. Session and format must outlive this.
  Conversation(Session& session, const ChatFormat& format, std::optional<std::string> system);

  void Clear();  // back to the system message

  // All messages, `message` of the user last, as tokens for the session to continue. After an
  // error the conversation is as before. kInvalidRequest: they do not fit the context, or the
  // template refuses them. What ChatFormat::Render() says else.
  Result<std::vector<Token>> Ask(std::string message);
  // What the model made of them is part of the conversation, and of what the session saves.
  void Answered(std::string text);

 private:
  Result<std::vector<Token>> Tokens() const;
  void Recall();
  void Remember();

  Session& session_;
  const ChatFormat& format_;
  std::optional<std::string> system_;
  std::vector<ChatTurn> turns_;
};

// What is known of a model for ChatFormat::Make(), but for `control_texts`.
ChatModel ChatModelOf(const Vocab& vocab, std::string template_text);

}  // namespace moestro
