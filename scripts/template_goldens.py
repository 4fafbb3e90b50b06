#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Renders chat templates as transformers' apply_chat_template does, for tests/chat.

    scripts/template_goldens.py [FOLDER]

FOLDER (tests/chat) has templates/*.jinja; for each one goldens/NAME.json is written, with the
prompt of every conversation in tests/chat/conversations.json, or the words of its refusal. Needs
Python's jinja2; the tests that read the goldens do not. strftime_now() gives its format in both.
"""

import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

TESTS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "chat"


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def refuse(words):
    raise jinja2.exceptions.TemplateError(words)


def environment():
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    made.filters["tojson"] = to_json
    made.globals["raise_exception"] = refuse
    made.globals["strftime_now"] = lambda form: form
    return made


def message(turn, thoughts_key):
    made = {"role": turn["role"], "content": turn["content"]}
    if "reasoning" in turn:
        made[thoughts_key] = turn["reasoning"]
    if "call_id" in turn:
        made["tool_call_id"] = turn["call_id"]
    if "name" in turn:
        made["name"] = turn["name"]
    if "calls" in turn:
        made["tool_calls"] = [{"type": "function", "id": call["id"],
                               "function": {"name": call["name"], "arguments": call["arguments"]}}
                              for call in turn["calls"]]
    return made


def render(text, conversation, tools):
    thoughts_key = "thinking" if ".thinking" in text else "reasoning_content"
    messages = [message(turn, thoughts_key) for turn in conversation["turns"]]
    try:
        return environment().from_string(text).render(
            messages=messages, tools=tools if conversation.get("tools") else None,
            documents=None, add_generation_prompt=True, bos_token="<s>", eos_token="</s>",
            **conversation.get("arguments", {}))
    except jinja2.exceptions.TemplateError as error:
        return {"refusal": str(error)}


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else TESTS
    conversations = json.loads((TESTS / "conversations.json").read_text(encoding="utf-8"))
    tools = [{"type": "function", "function": tool}
             for tool in json.loads((TESTS / "tools.json").read_text(encoding="utf-8"))]
    (folder / "goldens").mkdir(exist_ok=True)
    for path in sorted((folder / "templates").glob("*.jinja")):
        text = path.read_text(encoding="utf-8")
        said = {one["name"]: render(text, one, tools) for one in conversations}
        golden = folder / "goldens" / (path.stem + ".json")
        golden.write_text(json.dumps(said, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
