// SPDX-License-Identifier: MIT
#include "chat/known_templates.h"

#include <algorithm>
#include <array>

namespace moestro {
namespace {

struct Known {
  std::string_view name;
  std::string_view text;
};

// None of them knows tools: those are described in the system's words (plain_turns.h).
constexpr std::array kTemplates = {
    Known{"chatml", R"(
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %})"},
    Known{"gemma", R"({{- bos_token }}
{%- for m in messages %}
    {%- if m.role == 'system' %}{{ raise_exception('There is no system') }}{% endif %}
    {%- set role = 'model' if m.role == 'assistant' else 'user' %}
    {{- '<start_of_turn>' + role + '\n' + (m.content | trim) + '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\n' }}{%- endif %})"},
    Known{"llama3", R"({{- bos_token }}
{%- for m in messages %}
    {{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}
    {{- (m.content | trim) + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %})"},
    Known{"mistral", R"({{- bos_token }}
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

std::string KnownTemplateNames() {
  std::string names;
  for (const Known& known : kTemplates) {
    if (!names.empty()) names += ", ";
    names += known.name;
  }
  return names;
}

}  // namespace moestro
