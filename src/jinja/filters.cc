// SPDX-License-Identifier: MIT
// Filters by name.
#include "jinja/filter_call.h"

namespace moestro::jinja {
namespace {

// none: no filter has that name.
const FilterTable::value_type* FindFilter(std::string_view name) {
  for (const FilterTable* filters :
       {&TextFilters(), &ListFilters(), &ValueFilters(), &NumberFilters(), &MarkupFilters()}) {
    const auto found = filters->find(name);
    if (found != filters->end()) return &*found;
  }
  return nullptr;
}

}  // namespace

bool HasFilter(std::string_view name) { return FindFilter(name) != nullptr; }

Value ApplyFilter(Interpreter& interpreter, std::string_view name, const Value& input,
                  Arguments& arguments) {
  const auto* const filter = FindFilter(name);
  if (name == "random" || name == "urlize") {
    Raise("the filter '{}' is left out on purpose: a conversation has one prompt, and no links",
          name);
  }
  if (filter == nullptr) Raise("no filter is named '{}'", name);
  return filter->second(
      {.interpreter = interpreter, .input = input, .arguments = arguments, .name = filter->first});
}

}  // namespace moestro::jinja
