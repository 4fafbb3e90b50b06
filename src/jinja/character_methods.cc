// SPDX-License-Identifier: MIT
// Python's methods of texts that look at each character.
#include <algorithm>

#include "jinja/characters.h"
#include "jinja/method_call.h"

namespace moestro::jinja {
namespace {

template <std::string (*change)(std::string_view)>
Value Changed(const MethodCall& call) {
  call.ExpectNoArguments();
  return Value(change(call.text()));
}

// A dict has the numbers of characters, and for each a text, a number or none.
Value MethodTranslate(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  const Value table = reader.Take("table");
  reader.ExpectEnd();
  std::string made;
  for (const std::string_view c : SplitCharacters(call.text())) {
    const Value key(int64_t{FirstCharacter(c).code_point});
    const Value found = call.interpreter.GetItem(table, key);
    if (found.is_undefined()) {
      made += c;
    } else if (found.is_text()) {
      made += found.text();
    } else if (!found.is_none()) {
      const int64_t code = WholeOf(found, "a character's number");
      if (code < 0 || code > 0x10FFFF) Raise("character mapping must be in range(0x110000)");
      AppendCharacter(made, static_cast<uint32_t>(code));
    }
    if (made.size() > kMostTextBytes) Raise("a text of more than {} bytes", kMostTextBytes);
  }
  return Value(std::move(made));
}
Value MethodIsIdentifier(const MethodCall& call) {
  call.ExpectNoArguments();
  bool is_first = true;
  for (const std::string_view c : SplitCharacters(call.text())) {
    const uint32_t code = FirstCharacter(c).code_point;
    if (!IsLetter(code) && c != "_" && (is_first || !IsDigit(code))) return Value(false);
    is_first = false;
  }
  return Value(!is_first);
}
// Whether the text has characters and all are of the kind.
template <class IsOfKind>
Value AreAll(const MethodCall& call, IsOfKind is_of_kind) {
  call.ExpectNoArguments();
  const std::string& text = call.text();
  return Value(!text.empty() && std::ranges::all_of(SplitCharacters(text), [&](std::string_view c) {
    return is_of_kind(FirstCharacter(c).code_point);
  }));
}
Value MethodIsKind(const MethodCall& call) {
  if (call.name == "isalpha") return AreAll(call, IsLetter);
  if (call.name == "isspace") return AreAll(call, IsBlank);
  if (call.name == "isascii") {
    call.ExpectNoArguments();
    return Value(std::ranges::all_of(call.text(), [](char c) { return (c & 0x80) == 0; }));
  }
  if (call.name == "isalnum") {
    return AreAll(call, [](uint32_t c) { return IsLetter(c) || IsDigit(c); });
  }
  return AreAll(call, IsDigit);
}
Value MethodIsCase(const MethodCall& call) {
  Arguments none;
  call.ExpectNoArguments();
  return Value(ApplyTest(call.name == "isupper" ? "upper" : "lower", call.self, none));
}
Value MethodIsTitle(const MethodCall& call) {
  call.ExpectNoArguments();
  const std::string& text = call.text();
  return Value(TitleOfLetters(text) == text && Lower(text) != text);
}

}  // namespace

const MethodTable& CharacterMethods() {
  static const MethodTable methods{
      {"capitalize", Changed<Capitalize>}, {"casefold", Changed<Lower>},
      {"isalnum", MethodIsKind},           {"isalpha", MethodIsKind},
      {"isascii", MethodIsKind},           {"isdecimal", MethodIsKind},
      {"isdigit", MethodIsKind},           {"isidentifier", MethodIsIdentifier},
      {"islower", MethodIsCase},           {"isnumeric", MethodIsKind},
      {"isspace", MethodIsKind},           {"istitle", MethodIsTitle},
      {"isupper", MethodIsCase},           {"lower", Changed<Lower>},
      {"swapcase", Changed<SwapCase>},     {"title", Changed<TitleOfLetters>},
      {"translate", MethodTranslate},      {"upper", Changed<Upper>},
  };
  return methods;
}

}  // namespace moestro::jinja
