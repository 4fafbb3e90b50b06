// SPDX-License-Identifier: MIT
#include "chat/known_templates.h"

#include <algorithm>
#include <array>

namespace moestro {
namespace {

struct Known {
  std::string_view name;
  std::string_view mark;  // a text that templates of this kind contain
  std::string_view text;
};

// No template here writes tools: those are described in the system's words (plain_turns.h). A mark
// that several kinds have comes after marks that one has.
constexpr std::array kTemplates = {
    Known{"cohere", "<|START_OF_TURN_TOKEN|>", R"({{- bos_token }}
{%- set names = {'user': '<|USER_TOKEN|>', 'assistant': '<|CHATBOT_TOKEN|>'} %}
{%- for m in messages %}
    {{- '<|START_OF_TURN_TOKEN|>' + names.get(m.role, '<|SYSTEM_TOKEN|>') }}
    {{- m.content + '<|END_OF_TURN_TOKEN|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{%- endif %})"},
    Known{"deepseek", "<｜User｜>", R"({{- bos_token }}
{%- for m in messages %}
    {%- if m.role == 'user' %}{{- '<｜User｜>' + m.content }}
    {%- elif m.role == 'assistant' %}{{- '<｜Assistant｜>' + m.content + eos_token }}
    {%- else %}{{- m.content }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<｜Assistant｜>' }}{%- endif %})"},
    Known{"gemma4", "<|turn>", R"({{- bos_token }}
{%- for m in messages %}
    {{- '<|turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}
    {{- (m.content | trim) + '<turn|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|turn>model\n' }}{%- endif %})"},
    Known{"glm4", "[gMASK]<sop>", R"([gMASK]<sop>
{%- for m in messages %}{{- '<|' + m.role + '|>\n' + m.content }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %})"},
    Known{"gpt-oss", "<|channel|>", R"(
{%- for m in messages %}
    {{- '<|start|>' + m.role + ('<|channel|>final' if m.role == 'assistant' else '') }}
    {{- '<|message|>' + m.content + '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %})"},
    Known{"granite", "<|start_of_role|>", R"(
{%- for m in messages %}
    {{- '<|start_of_role|>' + m.role + '<|end_of_role|>' + m.content + '<|end_of_text|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_of_role|>assistant<|end_of_role|>' }}
{%- endif %})"},
    Known{"kimi", "<|im_user|>", R"(
{%- for m in messages %}
    {{- '<|im_' + m.role + '|>' + m.role + '<|im_middle|>' + m.content + '<|im_end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_assistant|>assistant<|im_middle|>' }}{%- endif %})"},
    Known{"minimax", "]~b]", R"(]~!b[
{%- for m in messages %}
    {{- ']~b]' + ('ai' if m.role == 'assistant' else m.role) + '\n' + m.content + '[e~[\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- ']~b]ai\n' }}{%- endif %})"},
    Known{"chatml", "<|im_start|>", R"(
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %})"},
    Known{"gemma", "<start_of_turn>", R"({{- bos_token }}
{%- for m in messages %}
    {%- if m.role == 'system' %}{{ raise_exception('There is no system') }}{% endif %}
    {%- set role = 'model' if m.role == 'assistant' else 'user' %}
    {{- '<start_of_turn>' + role + '\n' + (m.content | trim) + '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\n' }}{%- endif %})"},
    Known{"llama3", "<|start_header_id|>", R"({{- bos_token }}
{%- for m in messages %}
    {{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}
    {{- (m.content | trim) + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %})"},
    Known{"phi", "<|end|>", R"(
{%- for m in messages %}{{- '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>\n' }}{%- endif %})"},
    Known{"mistral", "[INST]", R"({{- bos_token }}
{%- for m in messages %}
    {%- if m.role == 'user' %}{{- '[INST] ' + m.content + ' [/INST]' }}
    {%- elif m.role == 'assistant' %}{{- ' ' + m.content + eos_token }}
    {%- else %}{{ raise_exception('There is no system') }}
    {%- endif %}
{%- endfor %})"},
};

}  // namespace

std::optional<std::string_view> KnownTemplate(std::string_view name) {
  const auto found = std::ranges::find(kTemplates, name, &Known::name);
  if (found == kTemplates.end()) return std::nullopt;
  return found->text;
}

std::optional<NamedTemplate> TemplateOfMarks(std::string_view template_text) {
  const auto found = std::ranges::find_if(kTemplates, [template_text](const Known& known) {
    return template_text.contains(known.mark);
  });
  if (found == kTemplates.end()) return std::nullopt;
  return NamedTemplate{.name = found->name, .text = found->text};
}

std::string KnownTemplateNames() {
  std::string names;
  for (const Known& known : kTemplates) {
    if (!names.empty()) names += ", ";
    names += known.name;
  }
  return names;
}

}  // namespace moestro
