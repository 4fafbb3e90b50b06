// SPDX-License-Identifier: MIT
// Chat templates that have a name, for models that come without one or with a wrong one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace moestro {

// Jinja text; none: no template has that name.
std::optional<std::string_view> KnownTemplate(std::string_view name);
// The known template for the marks of turns that occur in `template_text`, for a model whose own
// template fails. none: no known marks.
struct NamedTemplate {
  std::string_view name;
  std::string_view text;
};
std::optional<NamedTemplate> TemplateOfMarks(std::string_view template_text);
// All names, for messages.
std::string KnownTemplateNames();

}  // namespace moestro
