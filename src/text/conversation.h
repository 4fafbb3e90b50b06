// SPDX-License-Identifier: MIT
// Messages in order, written in the model's chat format (chat/chat_format.h). Tokens that are
// already in the sequence are not evaluated again (Session::Continue).
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
  // Begins with the messages that were saved with the session's text, if any; else with `system`,
  // if given. Session and format must outlive this.
  Conversation(Session& session, const ChatFormat& format, std::optional<std::string> system);

  void Clear();  // back to the system message

  // Adds the user's `message` and returns all messages as tokens for the session to continue. Gives
  // the session the positions where later messages may part from these tokens. After an error the
  // conversation is as before. kInvalidRequest: the messages do not fit the context, or the
  // template refuses them. Other errors: those of ChatFormat::Render().
  Result<std::vector<Token>> Ask(std::string message);
  // Adds the model's answer to the conversation and to the text that the session saves.
  void Answered(std::string text);

 private:
  Result<std::vector<Token>> Tokens(const ChatInput& input) const;
  std::vector<uint32_t> SharedWithLater(const ChatInput& input,
                                        const std::vector<Token>& tokens) const;
  void Recall();
  void Remember();

  Session& session_;
  const ChatFormat& format_;
  std::optional<std::string> system_;
  std::vector<ChatTurn> turns_;
};

// The facts of a model for ChatFormat::Make(), without `control_texts`.
ChatModel ChatModelOf(const Vocab& vocab, std::string template_text);

}  // namespace moestro
