// SPDX-License-Identifier: MIT
// chat_model FROM TO: the demo model with a chat template that knows tools. It is enough for
// clients that want answers of the right form; what it must say is held by grammars.
#include <cstdio>
#include <span>

#include "tests/support/chat_model_testing.h"

namespace {

constexpr const char* kTemplate =
    "{%- if tools %}Tools, called by <tool_call>{\"name\": NAME, \"arguments\": {}}</tool_call>:\n"
    "{%- for tool in tools %}\n{{ tool | tojson }}{%- endfor %}\n{%- endif %}"
    "{%- for message in messages %}\n"
    "{%- if message.role == 'tool' %}<tool_response>{{ message.content }}</tool_response>\n"
    "{%- else %}{{ message.role }}: {{ message.content or '' }}\n"
    "{%- for call in message.tool_calls or [] %}<tool_call>{\"name\": \"{{ call.function.name "
    "}}\", "
    "\"arguments\": {{ call.function.arguments | tojson }}}</tool_call>\n{%- endfor %}"
    "{%- endif %}{%- endfor %}\n{%- if add_generation_prompt %}assistant: {%- endif %}";

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> arguments(argv, static_cast<size_t>(argc));
  if (arguments.size() != 3) {
    std::fprintf(stderr, "usage: chat_model FROM TO\n");
    return 2;
  }
  if (moestro::WriteChatModel(arguments[1], arguments[2], kTemplate)) return 0;
  std::fprintf(stderr, "cannot read %s or write %s\n", arguments[1], arguments[2]);
  return 1;
}
