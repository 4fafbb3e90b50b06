// SPDX-License-Identifier: MIT
// Python's methods of texts.
#include <algorithm>

#include "jinja/characters.h"
#include "jinja/methods.h"
#include "jinja/object.h"

namespace moestro::jinja {
namespace {

const std::string& TextArgument(const Value& value, std::string_view method) {
  if (value.is_undefined()) Raise("{}", value.why_undefined());
  if (!value.is_text()) Raise("{}(): a str is needed, not '{}'", method, TypeName(value));
  return value.text();
}

Value MethodStrip(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  const Value set = reader.Take("chars", Value::None());
  reader.ExpectEnd();
  const bool from_left = call.name != "rstrip";
  const bool from_right = call.name != "lstrip";
  if (set.is_none()) return Value(Strip(call.text(), from_left, from_right));
  return Value(StripSet(call.text(), TextArgument(set, call.name), from_left, from_right));
}

std::vector<Value> SplitAtBlanks(std::string_view text, size_t most) {
  std::vector<Value> parts;
  for (text = Strip(text, true, false); !text.empty(); text = Strip(text, true, false)) {
    if (parts.size() == most) {
      parts.emplace_back(Strip(text, false, true));
      break;
    }
    size_t end = 0;
    while (end < text.size()) {
      const Character c = FirstCharacter(text.substr(end));
      if (IsBlank(c.code_point)) break;
      end += c.bytes;
    }
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}
std::vector<Value> SplitAtBlanksFromBehind(std::string_view text, size_t most) {
  std::vector<Value> parts = SplitAtBlanks(text, SIZE_MAX);
  if (parts.size() <= most) return parts;
  // The first parts stay together, with the blanks between them.
  std::string_view rest = text;
  for (size_t i = 0; i < most; ++i) {
    rest = Strip(rest, false, true);
    rest.remove_suffix(parts[parts.size() - 1 - i].text().size());
  }
  std::vector<Value> split{Value(Strip(rest, true, true))};
  split.insert(split.end(), parts.end() - static_cast<std::ptrdiff_t>(most), parts.end());
  return split;
}
Value MethodSplit(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  const Value separator = reader.Take("sep", Value::None());
  const int64_t limit = WholeOf(reader.Take("maxsplit", Value(int64_t{-1})), "maxsplit");
  reader.ExpectEnd();
  const size_t most = limit < 0 ? SIZE_MAX : static_cast<size_t>(limit);
  const bool from_behind = call.name == "rsplit";
  std::string_view left = call.text();
  if (separator.is_none()) {
    return Value::MakeList(from_behind ? SplitAtBlanksFromBehind(left, most)
                                       : SplitAtBlanks(left, most));
  }
  const std::string& between = TextArgument(separator, call.name);
  if (between.empty()) Raise("empty separator");
  std::vector<Value> parts;
  while (parts.size() < most) {
    const size_t at = from_behind ? left.rfind(between) : left.find(between);
    if (at == std::string_view::npos) break;
    if (from_behind) {
      parts.emplace_back(left.substr(at + between.size()));
      left = left.substr(0, at);
    } else {
      parts.emplace_back(left.substr(0, at));
      left.remove_prefix(at + between.size());
    }
  }
  parts.emplace_back(left);
  if (from_behind) std::ranges::reverse(parts);
  return Value::MakeList(std::move(parts));
}
Value MethodPartition(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  const Value separator = reader.Take("sep");
  reader.ExpectEnd();
  const std::string& between = TextArgument(separator, call.name);
  if (between.empty()) Raise("empty separator");
  const std::string_view text = call.text();
  const bool from_behind = call.name == "rpartition";
  const size_t at = from_behind ? text.rfind(between) : text.find(between);
  if (at == std::string_view::npos) {
    return from_behind ? Value::Tuple({Value(""), Value(""), Value(text)})
                       : Value::Tuple({Value(text), Value(""), Value("")});
  }
  return Value::Tuple(
      {Value(text.substr(0, at)), separator, Value(text.substr(at + between.size()))});
}
Value MethodSplitLines(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  const bool keeps_ends = IsTrue(reader.Take("keepends", Value(false)));
  reader.ExpectEnd();
  std::vector<Value> lines;
  for (const std::string_view line :
       keeps_ends ? SplitLinesWithEnds(call.text()) : SplitLines(call.text())) {
    lines.emplace_back(line);
  }
  return Value::MakeList(std::move(lines));
}

Value MethodExpandTabs(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  const int64_t size =
      std::max<int64_t>(WholeOf(reader.Take("tabsize", Value(int64_t{8})), "a tab's size"), 0);
  reader.ExpectEnd();
  std::string made;
  int64_t column = 0;
  for (const std::string_view c : SplitCharacters(call.text())) {
    if (c != "\t") {
      made += c;
      column = c == "\n" || c == "\r" ? 0 : column + 1;
      continue;
    }
    const int64_t blanks = size == 0 ? 0 : size - column % size;
    made += BlanksOf(blanks);
    column += blanks;
    if (made.size() > kMostTextBytes) Raise("a text of more than {} bytes", kMostTextBytes);
  }
  return Value(std::move(made));
}

// The part of a text that start and end leave, which methods that look for a text may be given.
std::string_view PartOf(const MethodCall& call, ArgumentReader& reader, size_t& first) {
  const Value begin = reader.Take("start", Value::None());
  const Value end = reader.Take("end", Value::None());
  reader.ExpectEnd();
  const std::string_view text = call.text();
  const auto length = static_cast<int64_t>(CountCharacters(text));
  const auto place = [length](const Value& bound, int64_t otherwise) {
    if (bound.is_none()) return otherwise;
    const int64_t at = WholeOf(bound, "a bound");
    return std::clamp<int64_t>(at < 0 ? std::max<int64_t>(at, -length) + length : at, 0, length);
  };
  const int64_t from = place(begin, 0);
  const int64_t to = std::max(place(end, length), from);
  first = static_cast<size_t>(from);
  const size_t first_byte = ByteOf(text, first);
  const std::string_view rest = text.substr(first_byte);
  return rest.substr(0, ByteOf(rest, static_cast<size_t>(to - from)));
}
Value MethodStartsEnds(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  const Value sought = reader.Take("prefix");
  size_t first = 0;
  const std::string_view part = PartOf(call, reader, first);
  const auto fits = [&](const Value& value) {
    const std::string& text = TextArgument(value, call.name);
    return call.name == "startswith" ? part.starts_with(text) : part.ends_with(text);
  };
  if (sought.is_tuple()) return Value(std::ranges::any_of(sought.list().items, fits));
  return Value(fits(sought));
}
// find, rfind, index, rindex.
Value MethodFind(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  const Value sought = reader.Take("sub");
  size_t first = 0;
  const std::string_view part = PartOf(call, reader, first);
  const std::string& text = TextArgument(sought, call.name);
  const size_t at = call.name.starts_with('r') ? part.rfind(text) : part.find(text);
  if (at != std::string_view::npos) return CountValue(first + CountCharacters(part.substr(0, at)));
  if (call.name.ends_with("index")) Raise("substring not found");
  return Value(int64_t{-1});
}
Value MethodCount(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  const Value sought = reader.Take("sub");
  size_t first = 0;
  const std::string_view part = PartOf(call, reader, first);
  const std::string& text = TextArgument(sought, call.name);
  if (text.empty()) return CountValue(CountCharacters(part) + 1);
  size_t n = 0;
  for (size_t at = part.find(text); at != part.npos; at = part.find(text, at + text.size())) ++n;
  return CountValue(n);
}
Value MethodReplace(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  const Value old_text = reader.Take("old");
  const Value new_text = reader.Take("new");
  const int64_t limit = WholeOf(reader.Take("count", Value(int64_t{-1})), "a count");
  reader.ExpectEnd();
  const std::string& from = TextArgument(old_text, call.name);
  const std::string to =
      call.self.is_escaped() ? EscapedTextOf(new_text) : TextArgument(new_text, call.name);
  uint64_t left = limit < 0 ? UINT64_MAX : static_cast<uint64_t>(limit);
  const std::string_view text = call.text();
  std::string made;
  size_t at = 0;
  const auto check = [&made] {
    if (made.size() > kMostTextBytes) Raise("a text of more than {} bytes", kMostTextBytes);
  };
  if (from.empty()) {
    // Before each character and behind the last.
    for (; left > 0 && at < text.size(); --left) {
      const size_t bytes = FirstCharacter(text.substr(at)).bytes;
      made += to;
      made += text.substr(at, bytes);
      at += bytes;
      check();
    }
    made += text.substr(at);
    if (left > 0) made += to;
    return Value(std::move(made));
  }
  for (size_t found = text.find(from); left > 0 && found != text.npos; --left) {
    made += text.substr(at, found - at);
    made += to;
    at = found + from.size();
    found = text.find(from, at);
    check();
  }
  made += text.substr(at);
  return Value(std::move(made));
}
Value MethodJoin(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  const Value items = reader.Take("iterable");
  reader.ExpectEnd();
  std::string text;
  bool is_first = true;
  for (const Value& item : ItemsOf(items)) {
    if (!is_first) text += call.text();
    is_first = false;
    text += call.self.is_escaped() ? EscapedTextOf(item) : TextArgument(item, "join");
    if (text.size() > kMostTextBytes) Raise("a text of more than {} bytes", kMostTextBytes);
  }
  return Value(std::move(text));
}
Value MethodFormat(const MethodCall& call) {
  return FormatBraces(call.interpreter, call.self, call.arguments);
}
Value MethodFormatMap(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  const Value mapping = reader.Take("mapping");
  reader.ExpectEnd();
  if (!mapping.is_dict()) Raise("format_map() takes a dict, not a '{}'", TypeName(mapping));
  Arguments named;
  for (const auto& [key, value] : mapping.dict().members()) {
    named.named.emplace_back(TextOf(key), value);
  }
  return FormatBraces(call.interpreter, call.self, named);
}
Value MethodRemoveAffix(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  const Value affix = reader.Take("affix");
  reader.ExpectEnd();
  std::string_view text = call.text();
  const std::string& sought = TextArgument(affix, call.name);
  if (call.name == "removeprefix" && text.starts_with(sought)) text.remove_prefix(sought.size());
  if (call.name == "removesuffix" && text.ends_with(sought)) text.remove_suffix(sought.size());
  return Value(text);
}
// ljust, rjust, center, zfill.
Value MethodJustify(const MethodCall& call) {
  ArgumentReader reader = call.Reader();
  const int64_t width = WholeOf(reader.Take("width"), "a width");
  std::string fill = "0";
  if (call.name != "zfill") {
    const Value given = reader.Take("fillchar", Value(" "));
    fill = TextArgument(given, call.name);
  }
  reader.ExpectEnd();
  constexpr int64_t kMostWidth = 100'000;
  if (width > kMostWidth) Raise("a width of more than {}", kMostWidth);
  if (CountCharacters(fill) != 1) Raise("The fill character must be exactly one character long");
  const std::string& text = call.text();
  const auto length = static_cast<int64_t>(CountCharacters(text));
  if (width <= length) return call.self;
  const auto missing = static_cast<size_t>(width - length);
  size_t before = 0;
  if (call.name == "rjust" || call.name == "zfill") before = missing;
  // Python's center() puts the odd one left of a text of odd width.
  if (call.name == "center") before = missing / 2 + (missing & static_cast<size_t>(width) & 1U);
  std::string made;
  for (size_t i = 0; i < before; ++i) made += fill;
  made += text;
  for (size_t i = before; i < missing; ++i) made += fill;
  if (call.name == "zfill" && (text.starts_with('-') || text.starts_with('+'))) {
    std::swap(made[0], made[before]);
  }
  return Value(std::move(made));
}

}  // namespace

const MethodTable& TextMethods() {
  static const MethodTable methods = [] {
    MethodTable all = CharacterMethods();
    all.insert({
        {"center", MethodJustify},
        {"count", MethodCount},
        {"endswith", MethodStartsEnds},
        {"expandtabs", MethodExpandTabs},
        {"find", MethodFind},
        {"format", MethodFormat},
        {"format_map", MethodFormatMap},
        {"index", MethodFind},
        {"join", MethodJoin},
        {"ljust", MethodJustify},
        {"lstrip", MethodStrip},
        {"partition", MethodPartition},
        {"removeprefix", MethodRemoveAffix},
        {"removesuffix", MethodRemoveAffix},
        {"replace", MethodReplace},
        {"rfind", MethodFind},
        {"rindex", MethodFind},
        {"rjust", MethodJustify},
        {"rpartition", MethodPartition},
        {"rsplit", MethodSplit},
        {"rstrip", MethodStrip},
        {"split", MethodSplit},
        {"splitlines", MethodSplitLines},
        {"startswith", MethodStartsEnds},
        {"strip", MethodStrip},
        {"zfill", MethodJustify},
    });
    return all;
  }();
  return methods;
}

// Python's methods of texts that look at each character.

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
