// SPDX-License-Identifier: MIT
// The library that runs Jinja. It trusts templates: one may crash it, or run without end. So it is
// used in a process of its own (template_process.h).
#pragma once

#include <memory>
#include <streambuf>
#include <string>
#include <string_view>

#include "base/result.h"
#include "chat/control_text.h"
#include "chat/template_message.h"

namespace moestro {

// What is given with a template.
struct TemplateText {
  std::string text;
  std::string bos;
  std::string eos;
  ControlTexts controls = {};  // marked in tools, arguments and calls
};

class LibraryTemplate {
 public:
  // kUnsupported with the library's words: it cannot be parsed.
  static Result<LibraryTemplate> Parse(TemplateText given);
  LibraryTemplate(LibraryTemplate&&) noexcept;
  LibraryTemplate& operator=(LibraryTemplate&&) noexcept;
  ~LibraryTemplate();

  // What it says goes to `out`, also before an error. kInvalidRequest with the template's own words
  // if it refuses, or for JSON in `input` that is none; kUnsupported if it fails otherwise. What it
  // takes is not given back.
  Status Render(SentInput input, std::streambuf& out) const;

 private:
  struct Impl;
  explicit LibraryTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro
