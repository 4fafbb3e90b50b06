// SPDX-License-Identifier: MIT
// The children's side of a template (template.h is the owner's). A helper reads it. A child of the
// helper watches one of its own, which renders one conversation after another.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "chat/control_text.h"
#include "sandbox/child_starter.h"

namespace moestro {

// What is given with a template.
struct TemplateText {
  std::string text;
  std::string bos;
  std::string eos;
  ControlTexts controls = {};  // marked in tools, arguments and calls
};

// What the process that renders may take of memory that can be written, beyond its parent's. There
// is one for large conversations and one for small ones, so all of them take 64 MiB at most.
inline constexpr uint64_t kLargeRenderMemory = uint64_t{48} << 20U;
inline constexpr uint64_t kSmallRenderMemory = uint64_t{16} << 20U;
inline constexpr std::chrono::milliseconds kLongestParse{5'000};  // of the processor

// What a child of the helper is asked for.
inline constexpr std::string_view kAskParsed = "p";  // says whether the template could be read
inline constexpr std::string_view kAskSmall = "s";   // renders, with kSmallRenderMemory
inline constexpr std::string_view kAskLarge = "l";   // likewise

// To a child that renders: the milliseconds of the processor that a rendering may take (a number),
// and once it says that it begins the messages of WriteInput().
//
// What it says: each message is a mark and what the mark says.
enum class RenderMark : char {
  kBegins = 'b',
  kText = 't',   // a part of what the template says
  kError = 'e',  // a byte of Errc, the error's message
  kDone = 'd',   // of this rendering. Milliseconds of the processor that all renderings took
  kEnd = '.',    // the child's. A byte of Trial::Outcome, whether memory ran out, and as for kDone
};

// To be served by a helper (ChildStarter).
ChildStarter::Work TemplateWork(TemplateText given);

}  // namespace moestro
