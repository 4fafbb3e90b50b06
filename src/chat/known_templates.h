// SPDX-License-Identifier: MIT
// Chat templates that have a name, for models that come without one or with a wrong one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace moestro {

// Jinja text; none: there is no such name.
std::optional<std::string_view> KnownTemplate(std::string_view name);
// The known template that writes the marks of turns which `template_text` speaks of, for a model
// whose own template fails. none: no marks that are known.
struct NamedTemplate {
  std::string_view name;
  std::string_view text;
};
std::optional<NamedTemplate> TemplateOfMarks(std::string_view template_text);
// All names, for messages.
std::string KnownTemplateNames();

}  // namespace moestro
