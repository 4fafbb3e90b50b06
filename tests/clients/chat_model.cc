// SPDX-License-Identifier: MIT
// chat_model FROM TO: the demo model with a chat template that knows tools and thoughts, and room
// for prompts of agents. Beyond the 256 positions that it learned it writes nonsense, which is
// enough for clients that want answers of the right form; what it must say is held by grammars.
#include <ggml.h>
#include <gguf.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>

namespace {

constexpr const char* kContextKey = "olmoe.context_length";
constexpr uint32_t kContext = 16384;
constexpr const char* kTemplateKey = "tokenizer.chat_template";
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

struct FreeGguf {
  void operator()(gguf_context* file) const { gguf_free(file); }
};
struct FreeGgml {
  void operator()(ggml_context* tensors) const { ggml_free(tensors); }
};

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> arguments(argv, static_cast<size_t>(argc));
  if (arguments.size() != 3) {
    std::fprintf(stderr, "usage: chat_model FROM TO\n");
    return 2;
  }
  ggml_context* raw = nullptr;
  const std::unique_ptr<gguf_context, FreeGguf> from(
      gguf_init_from_file(arguments[1], {.no_alloc = false, .ctx = &raw}));
  const std::unique_ptr<ggml_context, FreeGgml> tensors(raw);
  if (!from) {
    std::fprintf(stderr, "cannot read %s\n", arguments[1]);
    return 1;
  }
  const std::unique_ptr<gguf_context, FreeGguf> to(gguf_init_empty());
  gguf_set_kv(to.get(), from.get());
  gguf_set_val_u32(to.get(), kContextKey, kContext);
  gguf_set_val_str(to.get(), kTemplateKey, kTemplate);
  for (int64_t i = 0; i < gguf_get_n_tensors(from.get()); ++i) {
    gguf_add_tensor(to.get(), ggml_get_tensor(tensors.get(), gguf_get_tensor_name(from.get(), i)));
  }
  if (gguf_write_to_file(to.get(), arguments[2], false)) return 0;
  std::fprintf(stderr, "cannot write %s\n", arguments[2]);
  return 1;
}
