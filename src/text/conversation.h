// SPDX-License-Identifier: MIT
// Messages in turn, written out by the model's chat template. What a new message has in common with
// the sequence so far is not evaluated again (Session::Continue).
//
// Thread rule: the engine's thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "model/vocab.h"
#include "text/session.h"

namespace moestro {

class Conversation {
 public:
  // Takes up the messages that were saved with the session's text, if there are any; else begins
  // with `system`, if there is one. REQUIRES: the model has a chat template. The session must
  // outlive this.
  Conversation(Session& session, std::optional<std::string> system);

  void Clear();  // back to the system message

  // All messages, `message` of the user last, as tokens for the session to continue.
  // kInvalidRequest, and the conversation is as before: they do not fit the context.
  Result<std::vector<Token>> Ask(std::string message);
  // What the model made of them is part of the conversation, and of what the session saves.
  void Answered(std::string text);

 private:
  void Recall();
  void Remember();

  Session& session_;
  std::optional<std::string> system_;
  std::vector<ChatMessage> turns_;
};

}  // namespace moestro
