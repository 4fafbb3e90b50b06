// SPDX-License-Identifier: MIT
// For tests: answers as models write them, in each style, with the expected readings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/answer_styles_testing.h"

namespace moestro {

inline std::vector<Example> TaggedExamples() {
  return {
      {"plain", Tagged(), "Hello, wörld.\n", "Hello, wörld.\n"},
      {"a mark that is none", Tagged(), "a <tool_box> b <t", "a <tool_box> b <t"},
      {"thoughts", Tagged(), "<think>\nHm.\n\nYes.\n</think>\n\nFine.", "(Hm.\n\nYes.)Fine."},
      {"thoughts that the prompt opened", Thinking(Tagged()), "Hm.\n</think>\n\nFine.",
       "(Hm.)Fine."},
      {"thoughts opened twice", Thinking(Tagged()), "\n<think>\nHm.</think>Fine.", "(Hm.)Fine."},
      {"thoughts without end", Thinking(Tagged()), "Hm.\n</thin", "(Hm.\n</thin)"},
      {"thoughts in the middle are content", Tagged(), "Say <think>x</think>.",
       "Say <think>x</think>."},
      {"a call in thoughts is none", Tagged(), "<think><tool_call></think>ok", "(<tool_call>)ok"},
      {"a whole call in thoughts that end", Tagged(),
       "<think>So <tool_call>{\"name\": \"add\"}</tool_call> it is.</think>ok",
       "(So <tool_call>{\"name\": \"add\"}</tool_call> it is.)ok"},
      {"a whole call in thoughts that never end", Tagged(),
       "<think>\nI add. \n\n<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>",
       "(I add. )add[{}]"},
      {"calls in thoughts that never end", Thinking(Tagged()),
       "A <tool_call> is it. So:\n<tool_call>{\"name\": "
       "\"add\"}</tool_call>\n<tool_call>{\"name\": "
       "\"look\"}</tool_call>",
       "(A <tool_call> is it. So:)add[{}]look[{}]"},
      {"words behind a call in thoughts that never end", Thinking(Tagged()),
       "Hm.<tool_call>{\"name\": \"add\"}</tool_call> I see.", "(Hm.)add[{}] I see."},
      {"a call of no tool in thoughts that never end", Thinking(Tagged()),
       "Hm.<tool_call>{\"name\": \"peek\"}</tool_call>",
       "(Hm.<tool_call>{\"name\": \"peek\"}</tool_call>)"},
      {"half a call in thoughts that never end", Thinking(Tagged()),
       "Hm.<tool_call>{\"name\": \"add", "(Hm.<tool_call>{\"name\": \"add)"},
      {"a call without its opening mark", Tagged(),
       "I add.\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>",
       "I add.add[{\"a\": 1}]"},
      {"the same of no tool", Tagged(), "{\"name\": \"peek\", \"arguments\": {}}\n</tool_call>",
       "{\"name\": \"peek\", \"arguments\": {}}\n</tool_call>"},
      {"an answer that looks like a call", Tagged(), "{\"name\": \"add\", \"arguments\": {}}",
       "{\"name\": \"add\", \"arguments\": {}}"},
      {"a call that is closed twice", Tagged(),
       "<tool_call>{\"name\": \"add\"}</tool_call>\n</tool_call>\nDone.", "add[{}]Done."},
      {"a call", Tagged(),
       "Let me see.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": [1, "
       "2.5e3]}}\n</tool_call>",
       "Let me see.add[{\"a\": [1, 2.5e3]}]"},
      {"calls in a row", Tagged(),
       "<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>\n"
       "<tool_call>{\"name\":\"look\",\"arguments\":{\"place\":\"\\u00e9}\\\"\"}}</"
       "tool_call>\nDone.",
       "add[{}]look[{\"place\":\"\\u00e9}\\\"\"}]Done."},
      {"arguments before the name", Tagged(),
       "<tool_call>{\"arguments\": {\"a\": 1}, \"id\": 3, \"name\": \"add\"}</tool_call>",
       "add[{\"a\": 1}]"},
      {"arguments as text", Tagged(),
       "<tool_call>{\"name\": \"add\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
       "add[{\"a\": 1}]"},
      {"no arguments", Tagged(), "<tool_call>{\"name\": \"add\"}</tool_call>", "add[{}]"},
  };
}

// Calls that end early or are none.
inline std::vector<Example> BrokenTaggedExamples() {
  return {
      {"the answer ends before the end mark", Tagged(),
       "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_c", "add[{}]"},
      {"a call that is cut off", Tagged(), "So:\n<tool_call>\n{\"name\": \"add\", \"argum",
       "So:\n<tool_call>\n{\"name\": \"add\", \"argum"},
      {"a call that is broken", Tagged(), "<tool_call>{\"name\": add}</tool_call> sorry",
       "<tool_call>{\"name\": add}</tool_call> sorry"},
      {"arguments that are no object", Tagged(),
       "<tool_call>{\"name\": \"add\", \"arguments\": [1]}</tool_call>",
       "<tool_call>{\"name\": \"add\", \"arguments\": [1]}</tool_call>"},
      {"a word that is none", Tagged(),
       "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": [nts\"1]}}</tool_call>",
       "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": [nts\"1]}}</tool_call>"},
      {"a number that is none", Tagged(),
       "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1.e}}</tool_call>",
       "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1.e}}</tool_call>"},
      {"a call after a broken one", Tagged(),
       "<tool_call> no\n<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>",
       "<tool_call> noadd[{}]"},
      {"text that is not half of a character", Tagged(),
       "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"\\ud800\"}}</tool_call>",
       "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"\\ud800\"}}</tool_call>"},
  };
}

inline std::vector<Example> JsonExamples() {
  return {
      {"a list", List(),
       "[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": \"look\", "
       "\"arguments\": {}, \"id\": \"abc\"}] and text",
       "add[{\"a\": 1}]look[{}] and text"},
      {"a list that breaks in its second call", List(),
       "[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {}}, oops]", "add[{}], oops]"},
      {"a list without a list", List(), "[TOOL_CALLS] never", "[TOOL_CALLS] never"},
      {"names", Named(), "Hm. [TOOL_CALLS]add[ARGS]{\"a\": 1}[TOOL_CALLS]look[CALL_ID]x1[ARGS]{}",
       "Hm.add[{\"a\": 1}]look[{}]"},
      {"a bare call", Bare(), "{\"name\": \"add\", \"parameters\": {\"a\": 1}}", "add[{\"a\": 1}]"},
      {"bare calls", Bare(),
       "{\"name\": \"add\", \"parameters\": {}}; {\"type\": \"function\", \"name\": \"look\", "
       "\"parameters\": {}}",
       "add[{}]look[{}]"},
      {"a call behind its mark", Bare(),
       "So. <|python_tag|>{\"name\": \"add\", \"parameters\": {}}", "So.add[{}]"},
      {"an object that is an answer", Bare(), "{\"answer\": {\"name\": \"add\"}}",
       "{\"answer\": {\"name\": \"add\"}}"},
      {"an object of another name", Bare(), "{\"name\": \"Bob\", \"parameters\": {}}",
       "{\"name\": \"Bob\", \"parameters\": {}}"},
      {"an object within text", Bare(), "See {\"name\": \"add\", \"parameters\": {}}",
       "See {\"name\": \"add\", \"parameters\": {}}"},
      {"fenced calls", Fenced(),
       "Ok.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"a\": "
       "1}\n```"
       "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>look\n```json\n{}\n```"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "Ok.add[{\"a\": 1}]look[{}]"},
      {"calls without a fence", Fenced(),
       "<think>x</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": \"｜\"}"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "(x)add[{\"a\": \"｜\"}]"},
      {"marks of another kind", Fenced(), "a｜b<｜tool▁calls▁x<｜tool▁calls▁begin｜>z",
       "a｜b<｜tool▁calls▁x<｜tool▁calls▁begin｜>z"},
  };
}

inline std::vector<Example> XmlExamples() {
  return {
      {"parameters", Parameters(),
       "I "
       "will.\n\n<tool_call>\n<function=add>\n<parameter=a>\n5\n</parameter>\n<parameter=note>\n5\n"
       "</parameter>\n<parameter=b>\n{\"x\": [true]}\n</parameter>\n</function>\n</tool_call>",
       "I will.add[{\"a\": 5, \"note\": \"5\", \"b\": {\"x\": [true]}}]"},
      {"a value with a zero byte is text", Parameters(),
       std::string("<tool_call><function=add><parameter=a>1") + '\0' +
           " x</parameter></function></tool_call>",
       "add[{\"a\": \"1\\u0000 x\"}]"},
      {"a parameter of several lines", Parameters(),
       "<tool_call>\n<function=look>\n<parameter=place>\n\"a\n  <b>\n\n</parameter>\n</function>\n"
       "</tool_call>",
       "look[{\"place\": \"\\\"a\\n  <b>\\n\"}]"},
      {"Python's words", Parameters(),
       "<tool_call><function=add><parameter=a>True</parameter><parameter=b>None</parameter>"
       "</function></tool_call>",
       "add[{\"a\": true, \"b\": null}]"},
      {"a function without its outer mark", Parameters(),
       "<function=look>\n</function>\n</tool_call>", "look[{}]"},
      {"a function that is cut off", Parameters(),
       "<tool_call>\n<function=add>\n<parameter=a>\n5\n</param",
       "<tool_call>\n<function=add>\n<parameter=a>\n5\n</param"},
      {"words about a function that is no tool", Parameters(),
       "Write <function=foo> and\n<parameter=a>x</parameter></function>, then </tool_call>.",
       "Write <function=foo> and\n<parameter=a>x</parameter></function>, then </tool_call>."},
      {"words about a tool's function", Parameters(), "Write <function=look> to look. Yes.",
       "Write <function=look> to look. Yes."},
      {"a call of no tool", Parameters(), "<tool_call>\n<function=foo>\n</function>\n</tool_call>",
       "<tool_call>\n<function=foo>\n</function>\n</tool_call>"},
      {"JSON that holds the mark of a value's end", Parameters(),
       "<tool_call><function=add><parameter=a>[\"x</parameter>y\", 1]</parameter><parameter=b>\n"
       "{\"</parameter>\": 1}\n</parameter></function></tool_call>",
       "add[{\"a\": [\"x</parameter>y\", 1], \"b\": {\"</parameter>\": 1}}]"},
      {"values that begin like JSON", Parameters(),
       "<tool_call><function=add><parameter=a>{x</parameter><parameter=b>\"u\" v</parameter>"
       "</function></tool_call>",
       "add[{\"a\": \"{x\", \"b\": \"\\\"u\\\" v\"}]"},
      {"JSON that holds an end, by keys", KeyValues(),
       "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>[\"x</arg_value>y\"]</arg_value>\n"
       "</tool_call>",
       "add[{\"a\": [\"x</arg_value>y\"]}]"},
      {"keys and values", KeyValues(),
       "\n<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>[1]</arg_value>\n<arg_key>note</"
       "arg_key>\n"
       "<arg_value>true\n</arg_value>\n</tool_call>\n<tool_call>look</tool_call>",
       "add[{\"a\": [1], \"note\": \"true\\n\"}]look[{}]"},
      {"keys without values", KeyValues(), "<tool_call>add\n<arg_key>a</arg_key>\n</tool_call>",
       "<tool_call>add\n<arg_key>a</arg_key>\n</tool_call>"},
      {"JSON where tags belong", KeyValues(), "<tool_call>{\"name\": \"add\"}</tool_call>",
       "<tool_call>{\"name\": \"add\"}</tool_call>"},
  };
}

inline std::vector<Example> InvokeExamples() {
  return {
      {"values without lines of their own", JoinedKeyValues(),
       "Hm.</think><tool_call>add<arg_key>a</arg_key><arg_value>[1]</arg_value><arg_key>note"
       "</arg_key><arg_value>\n7</arg_value></tool_call><tool_call>look</tool_call>",
       "Hm.</think>add[{\"a\": [1], \"note\": \"\\n7\"}]look[{}]"},
      {"invokes", Thinking(Invokes()),
       "Hm.\n</think>\n\nI look.\n<minimax:tool_call>\n<invoke name=\"look\">\n"
       "<parameter name=\"place\">\n \"Rome\" <b></parameter>\n"
       "<parameter name=\"days\">[2, \"é\"]</parameter>\n</invoke>\n<invoke "
       "name=\"add\">\n</invoke>\n"
       "</minimax:tool_call>\n",
       "(Hm.)I look.look[{\"place\": \"\\n \\\"Rome\\\" <b>\", \"days\": [2, \"é\"]}]add[{}]"},
      {"an invoke's JSON that holds an end", Invokes(),
       "<minimax:tool_call>\n<invoke name=\"look\">\n"
       "<parameter name=\"days\">[\"a</parameter>b\", 1]</parameter>\n</invoke>\n"
       "</minimax:tool_call>\n",
       "look[{\"days\": [\"a</parameter>b\", 1]}]"},
      {"an invoke that is cut off", Invokes(),
       "<minimax:tool_call>\n<invoke name=\"look\">\n<parameter name=\"place\">Ro",
       "<minimax:tool_call>\n<invoke name=\"look\">\n<parameter name=\"place\">Ro"},
      {"an invoke without its outer mark", Invokes(), "<invoke name=\"look\">\n</invoke>",
       "look[{}]"},
  };
}

inline std::vector<Example> MarkedExamples() {
  return {
      {"a response", Thinking(Responses()),
       "Hm.\n</think>\n\n\n<response>\nFine, </resp.\n</response>\n", "(Hm.)Fine, </resp."},
      {"a call in place of a response", Thinking(Responses()),
       "Hm.\n</think>\n\n\n<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>\n\n"
       "<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>\n",
       "(Hm.)add[{}]look[{}]"},
      {"a response before a call", Thinking(Responses()),
       "Hm.\n</think>\n\n<response>\nI add.\n</response>\n\n<tool_call>\n{\"name\": \"add\", "
       "\"arguments\": {}}\n</tool_call>\n",
       "(Hm.)I add.add[{}]"},
      {"no response at all", Responses(), "Say <response>.", "Say <response>."},
      {"a response without end", Responses(), "<response>\nFine.\n</respo", "Fine.\n</respo"},
      {"an answer", Answers(), "<think>\nHm.\n</think>\n<answer>\nUse <b>\n\nhere.\n</answer>",
       "(Hm.)Use <b>\n\nhere."},
      {"a list in tags", Answers(),
       "<think>\nHm.\n</think>\n<answer>\n<tool_calls>[{\"name\": \"add\", \"arguments\": {\"a\": "
       "1}}, "
       "{\"name\": \"look\", \"arguments\": {}}]</tool_calls>\n</answer>",
       "(Hm.)add[{\"a\": 1}]look[{}]"},
      {"a list without an answer around it", Answers(),
       "<think>\n\n</think>\n<tool_calls>[{\"name\": \"add\", \"arguments\": {}}]</tool_calls>",
       "add[{}]"},
      {"a broken list", Answers(), "<answer>\n<tool_calls>[oops]</tool_calls>\n</answer>",
       "<tool_calls>[oops]</tool_calls>"},
  };
}

inline std::vector<Example> ChannelExamples() {
  return {
      {"a recipient at the beginning", Channels(),
       " to=functions.add<|channel|>commentary json<|message|>{\"a\": 1}<|call|>",
       "add[{\"a\": 1}]"},
      {"a recipient behind thoughts", Channels(),
       "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.add<|channel|>"
       "commentary json<|message|>{}<|call|>",
       "(Hm.)add[{}]"},
      {"a recipient in a header that ends without its mark", Channels(),
       "<|channel|>anal to=functions.tary to=ncfuti", "to=ncfuti"},
      {"words like a recipient", Channels(), " to=f and more", " to=f and more"},
      {"channels", Channels(),
       "<|channel|>analysis<|message|>Hm. "
       "<b><|end|><|start|>assistant<|channel|>final<|message|>Yes.",
       "(Hm. <b>)Yes."},
      {"a call in a channel", Channels(),
       "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
       "to=functions.add <|constrain|>json<|message|>{\"a\": 1}<|call|>",
       "(Hm.)add[{\"a\": 1}]"},
      {"a recipient before the channel", Channels(),
       "<|start|>assistant to=functions.look<|channel|>commentary json<|message|>{}", "look[{}]"},
      {"words before a call", Channels(),
       "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary "
       "to=functions.look<|message|>{}<|call|>",
       "I look.look[{}]"},
      {"a call that is broken", Channels(),
       "<|channel|>commentary to=functions.look<|message|>{oops}<|end|>", "{oops}"},
      {"no channel at all", Channels(), "Just <|text|>.", "Just <|text|>."},
      {"a header without end", Channels(), "a<|channel|>ana", "a"},
      {"a recipient that the arguments' type is joined to", Channels(),
       "<|channel|>commentary to=functions.lookjson<|message|>{\"place\": \"Oslo\"}<|call|>",
       "look[{\"place\": \"Oslo\"}]"},
      {"the same at the beginning", Channels(),
       " to=functions.add.code<|channel|>analysis<|message|>{}<|call|>", "add[{}]"},
      {"a recipient without its kind", Channels(),
       "<|channel|>commentary to=add json<|message|>{\"a\": 1}<|call|>", "add[{\"a\": 1}]"},
      {"the same at the beginning, bare", Channels(),
       " to=add<|channel|>commentary json<|message|>{}<|call|>", "add[{}]"},
      {"a tool that nobody has", Channels(),
       "<|channel|>commentary to=functions.addition<|message|>{}<|call|>", "addition[{}]"},
      {"a recipient that is no function", Channels(),
       "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>analysis "
       "to=browser.search code<|message|>{\"query\": \"x\"}<|call|>",
       "(Hm.){\"query\": \"x\"}"},
      {"a call in the channel of thoughts", Channels(),
       "<|channel|>analysis to=functions.look code<|message|>{\"place\": \"Oslo\"}<|call|>",
       "look[{\"place\": \"Oslo\"}]"},
      {"arguments within the header", Channels(),
       "<|channel|>commentary to=functions.look json{\"place\": \"Oslo\"}<|call|>",
       "look[{\"place\": \"Oslo\"}]"},
      {"words within a header", Channels(), "<|channel|>final Yes, it is.", "Yes, it is."},
      {"words within a header that ends", Channels(), "<|channel|>commentary to=x Yes.<|end|>",
       "Yes."},
  };
}

// Gemma 4's.
inline std::vector<Example> MarkedStringExamples() {
  const AnswerStyle style = MarkedStrings();
  return {
      {"marked strings", style,
       "<|channel>thought\nHm.\n<channel|>I look.<|tool_call>call:look{place:<|\"|>Bad \"Tölz\" "
       "{a}<|\"|>, n: -2.5,on:true,of:[1,<|\"|>b<|\"|>,{c:null}],e:{}}<tool_call|>",
       "(Hm.)I look.look[{\"place\": \"Bad \\\"Tölz\\\" {a}\", \"n\": -2.5, \"on\": true, "
       "\"of\": [1, \"b\", {\"c\": null}], \"e\": {}}]"},
      {"two calls with marked strings", style,
       "<|tool_call>call:add{}<tool_call|><|tool_call>call:look{place:<|\"|><|\"|>}<tool_call|>",
       "add[{}]look[{\"place\": \"\"}]"},
      {"marked strings that are cut off", style, "<|tool_call>call:look{place:<|\"|>Bad",
       "<|tool_call>call:look{place:<|\"|>Bad"},
      {"a value without marks", style, "<|tool_call>call:look{place:Rome}<tool_call|>",
       "<|tool_call>call:look{place:Rome}<tool_call|>"},
      {"marked keys and other words", style,
       "<|tool_call>call:look{<|\"|>a:b<|\"|>:True,c d:None}<tool_call|>",
       "look[{\"a:b\": true, \"c d\": null}]"},
      {"a key in JSON's quotes", style, "<|tool_call>call:look{\"a\":1}<tool_call|>",
       "<|tool_call>call:look{\"a\":1}<tool_call|>"},
      {"a key without a value", style, "<|tool_call>call:look{place}<tool_call|>",
       "<|tool_call>call:look{place}<tool_call|>"},
      {"a string in JSON's quotes", style, "<|tool_call>call:look{place:\"Rome\"}<tool_call|>",
       "<|tool_call>call:look{place:\"Rome\"}<tool_call|>"},
  };
}

inline std::vector<Example> SectionExamples() {
  const std::string open = "<|tool_calls_section_begin|>";
  const std::string close = "<|tool_calls_section_end|>";
  const auto numbered = [](const std::string& name, const std::string& arguments) {
    return "<|tool_call_begin|>" + name + "<|tool_call_argument_begin|>" + arguments +
           "<|tool_call_end|>";
  };
  const std::string add = numbered("functions.add:0", "{\"a\": 1}");
  const std::string solar = "<|tool_call:begin|>x1<|tool_call:name|>";
  return {
      {"numbered names", Numbered(),
       "I add. " + open + add + numbered("functions.look:1", "{}") + close,
       "I add.add[{\"a\": 1}]look[{}]"},
      {"blanks between numbered names", Numbered(),
       open + "\n" + numbered(" functions.add:0\n", " {\"a\": 1} ") + "\n" + close,
       "add[{\"a\": 1}]"},
      {"names without their number", Numbered(), open + numbered("add", "{}") + close, "add[{}]"},
      {"a number without its beginning", Numbered(), open + numbered("look:12", "{}") + close,
       "look[{}]"},
      {"a section that is spelled otherwise", Numbered(),
       "<|tool_call_section_begin|>" + add + "<|tool_call_section_end|>", "add[{\"a\": 1}]"},
      {"a numbered call without its section", Numbered(), "So: " + add + close + "\nDone.",
       "So:add[{\"a\": 1}]Done."},
      {"a numbered call in thoughts that never end", Thinking(Numbered()), "Hm." + open + add,
       "(Hm.)add[{\"a\": 1}]"},
      {"words about a section", Numbered(), "Write " + open + " first.",
       "Write " + open + " first."},
      {"a numbered call of no tool without its section", Numbered(),
       numbered("functions.f:0", "{}"), numbered("functions.f:0", "{}")},
      {"thoughts and a message", Turns(),
       "<|think|>Hm.<|end|><|begin|>assistant<|content|>Yes.<|end|>", "(Hm.)Yes."},
      {"thoughts and calls", Turns(),
       "<|think|>Hm.<|end|><|begin|>assistant<|tool_calls|>" + solar +
           "add<|tool_call:args|>{}<|tool_call:end|><|calls|>",
       "(Hm.)add[{}]"},
      {"a message alone", Turns(), "<|content|>Yes.<|end|>", "Yes."},
      {"sections", Thinking(Sections()),
       "Hm.<|close|>think<|sep|><|open|>response<|sep|>Yes.<|close|>response<|sep|>", "(Hm.)Yes."},
      {"a section whose end is left out", Thinking(Sections()),
       "Hm.<|open|>response<|sep|>Yes.<|close|>response<|sep|>", "(Hm.)Yes."},
      {"sections and calls", Thinking(Sections()),
       "Hm.<|close|>think<|sep|><|open|>tools<|sep|><|open|>call tool=\"add\" "
       "index=\"0\"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
       "(Hm.)add[{}]"},
      {"ids and names", WithIds(),
       "<|tool_calls|>" + solar + "add<|tool_call:args|>{\"a\": 1}<|tool_call:end|>" + solar +
           "look<|tool_call:args|>{}<|tool_call:end|><|calls|>",
       "add[{\"a\": 1}]look[{}]"},
      {"actions", Actions(),
       "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"add\", \"parameters\": "
       "{\"a\": 1}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"look\", \"parameters\": "
       "{}}\n]<|END_ACTION|>",
       "add[{\"a\": 1}]look[{}]"},
      {"an action without its mark", Actions(),
       "[{\"tool_name\": \"add\", \"parameters\": {}}]<|END_ACTION|>", "add[{}]"},
      {"a list behind a pipe", Piped(),
       "<|tool_call|>[{\"name\": \"add\", \"arguments\": {\"a\": 1}}]", "add[{\"a\": 1}]"},
      {"a call behind its mark that ends the answer", LastJson(),
       "Yes.<|function_call|>{\"name\": \"add\", \"arguments\": {\"a\": 1}}",
       "Yes.add[{\"a\": 1}]"},
  };
}

inline std::vector<Example> TaggedValueExamples() {
  const auto dsml = [](const std::string& name, const std::string& parameters) {
    return "<｜DSML｜invoke name=\"" + name + "\">\n" + parameters + "</｜DSML｜invoke>\n";
  };
  const auto parameter = [](const std::string& key, const std::string& is_text,
                            const std::string& value) {
    return "<｜DSML｜parameter name=\"" + key + "\" string=\"" + is_text + "\">" + value +
           "</｜DSML｜parameter>\n";
  };
  const std::string open = "<｜DSML｜function_calls>\n";
  const std::string close = "</｜DSML｜function_calls>";
  const auto argument = [](const std::string& key, const std::string& type,
                           const std::string& value) {
    return "<|open|>argument key=\"" + key + "\" type=\"" + type + "\"<|sep|>" + value +
           "<|close|>argument<|sep|>";
  };
  const std::string call = "<|open|>call tool=\"add\" index=\"0\"<|sep|>";
  const std::string ns = "]<]minimax[>[";
  const auto tag = [ns](const std::string& key, const std::string& value) {
    return ns + "<" + key + ">" + value + ns + "</" + key + ">";
  };
  const auto invoke = [ns](const std::string& name, const std::string& inner) {
    return ns + "<invoke name=\"" + name + "\">" + inner + ns + "</invoke>\n";
  };
  const auto suffixed = [](const std::string& mark, const std::string& value) {
    return "<" + mark + ":opensource>" + value + "</" + mark + ":opensource>\n";
  };
  return {
      {"DSML", Dsml(),
       "I add.\n\n" + open +
           dsml("add", parameter("a", "false", "[1]") + parameter("b", "true", "5")) +
           dsml("look", parameter("place", "true", "Rome")) + close,
       "I add.add[{\"a\": [1], \"b\": \"5\"}]look[{\"place\": \"Rome\"}]"},
      {"DSML of the other name", Dsml(),
       "<｜DSML｜tool_calls>\n" + dsml("look", "") + "</｜DSML｜tool_calls>", "look[{}]"},
      {"DSML without its mark", Dsml(), dsml("look", "") + close, "look[{}]"},
      {"DSML that is cut off", Dsml(), open + "<｜DSML｜invoke name=\"add\">\n<｜DSML｜par",
       open + "<｜DSML｜invoke name=\"add\">\n<｜DSML｜par"},
      {"open and close marks", Separated(),
       "<|open|>tools<|sep|>" + call + argument("a", "integer", "5") +
           argument("c", "string", "5") + argument("note", "string", "6") +
           "<|close|>call<|sep|><|close|>tools<|sep|>",
       "add[{\"a\": 5, \"c\": \"5\", \"note\": \"6\"}]"},
      {"nested tags", Nested(),
       ns + "<tool_call>\n" +
           invoke("add", tag("a", tag("item", "1") + tag("item", tag("k", "v"))) +
                             tag("o", tag("x", "true") + tag("y", "z w")) + tag("note", "7")) +
           invoke("look", "") + ns + "</tool_call>",
       "add[{\"a\": [1, {\"k\": \"v\"}], \"o\": {\"x\": true, \"y\": \"z w\"}, \"note\": "
       "\"7\"}]look[{}]"},
      {"nested tags without their mark", Nested(), invoke("look", tag("place", "a < b")),
       "look[{\"place\": \"a < b\"}]"},
      {"nested tags that are crossed", Nested(),
       ns + "<tool_call>" + ns + "<invoke name=\"add\">" + ns + "<a>" + ns + "<b>1" + ns + "</a>",
       ns + "<tool_call>" + ns + "<invoke name=\"add\">" + ns + "<a>" + ns + "<b>1" + ns + "</a>"},
      {"suffixed tags", Suffixed(),
       "<tool_calls:opensource>\n<tool_call:opensource>add<tool_sep:opensource>\n" +
           suffixed("arg_key", "a") + suffixed("arg_value", "5") +
           "</tool_call:opensource>\n</tool_calls:opensource>",
       "add[{\"a\": 5}]"},
      {"keys and values without their mark", KeyValues(),
       "Fine.\nadd\n<arg_key>a</arg_key>\n<arg_value>5</arg_value>\n</tool_call>",
       "Fine.add[{\"a\": 5}]"},
  };
}

inline std::vector<Example> PythonExamples() {
  const std::string open = "<|tool_call_start|>[";
  const std::string close = "]<|tool_call_end|>";
  return {
      {"Python", Python(),
       open +
           "add(a=-1.5, on=True, no=None, of=[1, 'b', (2,)], d={'k': \"v\", \"e\": {}}), "
           "look(place='It\\'s \\u00e9')" +
           close,
       "add[{\"a\": -1.5, \"on\": true, \"no\": null, \"of\": [1, \"b\", [2]], \"d\": {\"k\": "
       "\"v\", \"e\": {}}}]look[{\"place\": \"It's é\"}]"},
      {"Python with blanks", Python(), open + " look( place = \"a\" , ) , add( ) " + close,
       "look[{\"place\": \"a\"}]add[{}]"},
      {"Python's long strings", Python(), open + "look(place=\"\"\"a \"b\"\nc\"\"\")" + close,
       "look[{\"place\": \"a \\\"b\\\"\\nc\"}]"},
      {"JSON where Python belongs", Python(),
       open + "{\"name\": \"add\", \"arguments\": {\"a\": 1}}" + close, "add[{\"a\": 1}]"},
      {"Python without its mark", Python(), "So.\n[look(place=\"a\")]<|tool_call_end|>",
       "So.look[{\"place\": \"a\"}]"},
      {"Python without keys", Python(), open + "look(\"a\")" + close, open + "look(\"a\")" + close},
      {"a list of words", Python(), "See [looking(x)] and [look].", "See [looking(x)] and [look]."},
      {"an escape that is none", Python(), open + "look(place='\\ud800')" + close,
       open + "look(place='\\ud800')" + close},
  };
}

inline std::vector<Example> Examples() {
  std::vector<Example> all;
  for (auto& some : {SectionExamples(), TaggedValueExamples(), PythonExamples(), TaggedExamples(),
                     BrokenTaggedExamples(), JsonExamples(), XmlExamples(), InvokeExamples(),
                     MarkedExamples(), ChannelExamples(), MarkedStringExamples()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

// Where a text of UTF-8 may be cut.
inline std::vector<size_t> Cuts(std::string_view text) {
  std::vector<size_t> cuts;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U)
      cuts.push_back(i);
  }
  return cuts;
}

}  // namespace moestro
