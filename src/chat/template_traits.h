// SPDX-License-Identifier: MIT
// Abilities of a chat template, found by rendering small conversations.
#pragma once

#include <string>
#include <string_view>

#include "chat/template.h"

namespace moestro {

struct TemplateTraits {
  // The reason why the template fails for a conversation of one question; empty: none.
  std::string plain_failure;
  bool knows_system = false;
  bool knows_developer = false;  // renders a developer's turn otherwise than the system's
  bool knows_tools = false;      // writes tools' descriptions
  bool knows_calls = false;      // writes an assistant's calls
  bool knows_results = false;    // writes a tool's answers
  bool knows_reasoning = false;  // reads thoughts apart from content
  bool drops_thoughts = false;   // cuts thoughts out of an earlier answer's content
  // Renders such turns as they are sent; turns that the template refuses or leaves out are joined.
  bool knows_systems_in_a_row = false;
  bool knows_late_system = false;  // a system's turn behind an answer
  bool knows_users_in_a_row = false;
  bool knows_assistants_in_a_row = false;
  bool knows_calls_in_a_row = false;  // several calls in one turn
  bool says_names_of_calls = false;   // writes a called tool's name, whatever the call's id
  bool wants_short_ids = false;       // takes ids of calls only as nine letters or digits
  TemplateForms forms;
};

TemplateTraits FindTraits(const ChatTemplate& chat_template, std::string_view template_text);

}  // namespace moestro
