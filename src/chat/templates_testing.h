// SPDX-License-Identifier: MIT
// Small chat templates for tests, each with the marks of one kind of model.
#pragma once

#include <string_view>

namespace moestro {

inline constexpr std::string_view kTaggedTemplate = R"(
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n' }}{%- endif %}
    {%- for tool in tools %}
        {{- tool | tojson }}
        {{- '\n' }}
    {%- endfor %}
    {{- 'Write <tool_call>{"name": ..., "arguments": ...}</tool_call>.<|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- for m in messages if m.role != 'system' or not loop.first %}
    {%- if m.role == 'tool' %}
        {{- '<|im_start|>user\n<tool_response>' + m.content + '</tool_response><|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>' + m.role + '\n' }}
        {%- if m.reasoning_content %}
            {{- '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}
        {%- endif %}
        {{- m.content }}
        {%- for call in m.tool_calls %}
            {%- set f = call.function %}
            {{- '<tool_call>{"name": "' + f.name + '", "arguments": ' }}
            {{- f.arguments if f.arguments is string else f.arguments | tojson }}
            {{- '}</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- elif opens_thoughts %}
        {{- '<think>\n' }}
    {%- endif %}
{%- endif %})";

// As Gemma 4 writes turns, thoughts and calls.
inline constexpr std::string_view kMarkedTemplate = R"({{ bos_token }}
{%- if tools %}
    {{- '<|turn>system\n' + (tools | tojson) + '<turn|>\n' }}
{%- endif %}
{%- for m in messages %}
    {{- '<|turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}
    {%- if m.reasoning_content %}
        {{- '<|channel>thought\n' + m.reasoning_content + '<channel|>' }}
    {%- endif %}
    {{- m.content }}
    {%- for call in m.tool_calls %}
        {{- '<|tool_call>call:' + call.function.name + '{' }}
        {%- for key, value in call.function.arguments.items() %}
            {{- ',' if not loop.first }}
            {{- key + ':' + ('<|"|>' + value + '<|"|>' if value is string else value | tojson) }}
        {%- endfor %}
        {{- '}<tool_call|>' }}
    {%- endfor %}
    {{- '<turn|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|turn>model\n' }}
{%- endif %})";

inline constexpr std::string_view kListTemplate = R"({{ bos_token }}
{%- for m in messages %}
    {%- if m.role == 'user' %}
        {%- if loop.last and tools %}[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}
        {{- '[INST] ' + m.content + '[/INST]' }}
    {%- elif m.tool_calls %}
        {{- '[TOOL_CALLS] [' }}
        {%- for call in m.tool_calls %}
            {%- if call.id | length != 9 %}{{ raise_exception('Ids have nine letters') }}{% endif %}
            {{- '{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson + '}' }}
            {{- ', ' if not loop.last }}
        {%- endfor %}
        {{- ']' + eos_token }}
    {%- elif m.role == 'tool' %}
        {{- '[TOOL_RESULTS] ' + m.content + '[/TOOL_RESULTS]' }}
    {%- elif m.role == 'assistant' %}
        {{- ' ' + m.content + eos_token }}
    {%- else %}
        {{- raise_exception('No role "' + m.role + '" here') }}
    {%- endif %}
{%- endfor %})";

inline constexpr std::string_view kBareTemplate = R"(
{%- for m in messages %}
    {{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}
    {%- if tools and loop.first %}
        {{- 'Answer {"name": ..., "parameters": ...}. ' }}{{ tools | tojson }}
    {%- endif %}
    {%- for call in m.tool_calls %}
        {{- '{"name": "' + call.function.name + '", "parameters": ' }}
        {{- call.function.arguments | tojson }}{{ '}' }}
    {%- endfor %}
    {{- m.content + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %})";

inline constexpr std::string_view kParameterTemplate = R"(
{%- macro value(v) %}{{ v if v is string else v | tojson }}{% endmacro %}
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\n' + m.content }}
    {%- if tools and loop.first %}{{ tools | tojson }}{% endif %}
    {%- for call in m.tool_calls %}
        {{- '<tool_call>\n<function=' + call.function.name + '>\n' }}
        {%- for key, v in call.function.arguments | items %}
            {{- '<parameter=' + key + '>\n' + value(v) + '\n</parameter>\n' }}
        {%- endfor %}
        {{- '</function>\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})";

inline constexpr std::string_view kKeyValueTemplate = R"([gMASK]<sop>
{%- macro text_of(content) -%}{{ content }}{%- endmacro -%}
{%- for m in messages %}
    {{- '<|observation|>' if m.role == 'tool' else '<|' + m.role + '|>' }}
    {%- if tools and loop.first %}{{ tools[0] | tojson(ensure_ascii=False) }}{% endif %}
    {{- '\n<think></think>' if m.role == 'assistant' }}
    {{- text_of(m.content).strip() }}
    {%- for call in m.tool_calls %}
        {{- '\n<tool_call>' + call.function.name }}
        {%- for k, v in call.function.arguments.items() %}
            {{- '\n<arg_key>' + k + '</arg_key>\n<arg_value>' }}
            {{- v if v is string else v | tojson }}
            {{- '</arg_value>' }}
        {%- endfor %}
        {{- '\n</tool_call>' }}
    {%- endfor %}
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %})";

// Knows calls, but has no words for tools.
inline constexpr std::string_view kFencedTemplate = R"({{ bos_token }}
{%- for m in messages %}
    {%- if m.role == 'system' %}{{ m.content }}
    {%- elif m.role == 'assistant' and m.content is none %}
        {{- '<｜Assistant｜><｜tool▁calls▁begin｜>' }}
        {%- for call in m.tool_calls %}
            {{- '<｜tool▁call▁begin｜>function<｜tool▁sep｜>' + call.function.name + '\n```json\n' }}
            {{- call.function.arguments + '\n```<｜tool▁call▁end｜>' }}
        {%- endfor %}
        {{- '<｜tool▁calls▁end｜>' + eos_token }}
    {%- elif m.role == 'tool' %}{{ '<｜tool▁output▁begin｜>' + m.content }}
    {%- elif m.role == 'assistant' %}
        {{- '<｜Assistant｜>' + m.content.split('</think>')[-1] + eos_token }}
    {%- else %}{{ '<｜User｜>' + m.content }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<｜Assistant｜><think>\n' }}{% endif %})";

inline constexpr std::string_view kChannelTemplate = R"(
{%- for m in messages %}
    {%- if m.role == 'developer' or m.role == 'system' %}
        {{- '<|start|>developer<|message|>' + m.content + '<|end|>' }}
        {%- for tool in tools %}{{ '// ' + tool.function.name }}{% endfor %}
    {%- elif m.role == 'user' %}
        {%- if tools and loop.first %}{{ '// ' + tools[0].function.name }}{% endif %}
        {{- '<|start|>user<|message|>' + m.content + '<|end|>' }}
    {%- elif m.tool_calls %}
        {%- if m.content and m.thinking %}{{ raise_exception('Both') }}{% endif %}
        {%- if m.thinking %}
            {{- '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}
        {%- endif %}
        {{- '<|start|>assistant to=functions.' + m.tool_calls[0].function.name }}
        {{- '<|channel|>commentary json<|message|>' }}
        {{- m.tool_calls[0].function.arguments | tojson }}{{ '<|call|>' }}
    {%- else %}
        {{- '<|start|>' + m.role + '<|channel|>final<|message|>' + m.content + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %})";

// Refuses turns that do not alternate, and a system turn anywhere but at the beginning.
inline constexpr std::string_view kAlternatingTemplate = R"(
{%- set ns = namespace(asks=true) %}
{%- for m in messages %}
    {%- if m.role == 'system' %}
        {%- if not loop.first %}{{ raise_exception('Late') }}{% endif %}
        {{- '[S]' + m.content }}
    {%- else %}
        {%- if (m.role == 'user') != ns.asks %}{{ raise_exception('Alternate') }}{% endif %}
        {%- set ns.asks = not ns.asks %}
        {{- '[' + m.role + ']' + m.content }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}[answer]{% endif %})";

}  // namespace moestro
