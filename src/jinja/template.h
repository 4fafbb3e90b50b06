// SPDX-License-Identifier: MIT
// Jinja for chat templates: the language of Python's jinja2 with the settings with which
// transformers renders chat templates (trim_blocks, lstrip_blocks, loop controls, raise_exception,
// strftime_now, its own tojson). Values behave like Python's. docs/templates.md lists the
// differences.
//
// A template is a program that is not trusted: it may run long and take memory. Neither nesting nor
// recursion overflows the stack; the caller bounds time and memory (chat/template_process.h does),
// or `most_steps` does.
//
// Thread rule: a Template is immutable; any thread may render it. Values belong to one rendering.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "jinja/value.h"

namespace moestro::jinja {

struct RenderOptions {
  std::function<std::tm()> now = {};  // the time for templates that use it; empty: the clock's
  uint64_t most_steps = 0;            // most statements and expressions; 0: any number
};

class Template {
 public:
  // kUnsupported with the line and the reason: no template.
  static Result<Template> Parse(std::string_view text);
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  // Passes the text to `write` in parts, also the part before an error. `variables` is a dict.
  // kInvalidRequest with the template's own words if it calls raise_exception(); kUnsupported with
  // the line and the reason where Python would raise any other error.
  Status Render(const Value& variables, const std::function<void(std::string_view)>& write,
                const RenderOptions& options = {}) const;

 private:
  struct Impl;
  explicit Template(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro::jinja
