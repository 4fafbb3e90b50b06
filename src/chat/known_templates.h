// SPDX-License-Identifier: MIT
// Chat templates that have a name, for models that come without one or with a wrong one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace moestro {

// Jinja text; none: there is no such name.
std::optional<std::string_view> KnownTemplate(std::string_view name);
// All names, for messages.
std::string KnownTemplateNames();

}  // namespace moestro
