// SPDX-License-Identifier: MIT
// The children's side of a template (template.h is the owner's). A helper reads the template. A
// child of the helper watches a child of its own, which renders one conversation after another.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "chat/control_text.h"
#include "chat/template_message.h"
#include "jinja/value.h"
#include "sandbox/child_starter.h"

namespace moestro {

// The variables of a chat template: a conversation's turns and tools, as in transformers. Inside
// src/chat only.

// A dict of the variables. Takes time in proportion to the texts, and takes the texts over.
// `controls` are marked as in ChatTemplate::Parse(). kInvalidRequest for JSON that is none or has
// more than 262144 values together; a call's arguments may be no JSON, and stay text then.
Result<jinja::Value> TemplateValues(SentInput input, const std::string& bos, const std::string& eos,
                                    const ControlTexts& controls);

// A template and its texts.
struct TemplateText {
  std::string text;
  std::string bos;
  std::string eos;
  ControlTexts controls = {};  // marked in tools, arguments and calls
};

// Writable memory that a rendering process may take beyond its parent's. One process renders large
// conversations and one small ones, so both take 64 MiB at most.
inline constexpr uint64_t kLargeRenderMemory = uint64_t{48} << 20U;
inline constexpr uint64_t kSmallRenderMemory = uint64_t{16} << 20U;
inline constexpr std::chrono::milliseconds kLongestParse{5'000};  // of processor time

// Requests to the helper for a child.
inline constexpr std::string_view kAskParsed = "p";  // reports whether the template could be parsed
inline constexpr std::string_view kAskSmall = "s";   // renders, with kSmallRenderMemory
inline constexpr std::string_view kAskLarge = "l";   // renders, with kLargeRenderMemory

// Input of a rendering child: the milliseconds of processor time for a rendering (a number) and,
// once the child has sent kBegins, the messages of WriteInput().
//
// Output: each message is a mark and its content.
enum class RenderMark : char {
  kBegins = 'b',
  kText = 't',   // a part of the rendered text
  kError = 'e',  // a byte of Errc, the error's message
  kDone = 'd',   // end of this rendering; milliseconds of processor time that all renderings took
  kEnd = '.',    // end of the child: a byte of Trial::Outcome, whether memory ran out, and
                 // milliseconds as for kDone
};

// To be served by a helper (ChildStarter).
ChildStarter::Work TemplateWork(TemplateText given);

}  // namespace moestro
