// SPDX-License-Identifier: MIT
// Jinja's filters of texts for pages and their addresses.
#include <algorithm>
#include <charconv>
#include <optional>

#include "jinja/characters.h"
#include "jinja/filters.h"

namespace moestro::jinja {
namespace {

Value FilterEscape(const FilterCall& call) {
  call.ExpectNoArguments();
  if (call.input.is_escaped() && call.name != "forceescape") return call.input;
  return Value::EscapedText(EscapeHtml(TextOf(call.input)));
}
Value FilterSafe(const FilterCall& call) {
  call.ExpectNoArguments();
  return Value::EscapedText(TextOf(call.input));
}
// `is_field`: for a query's field, where a blank is "+" and "/" is escaped.
std::string UrlEncoded(std::string_view text, bool is_field) {
  const std::string_view plain = is_field ? "_.-~" : "_.-~/";
  std::string encoded;
  for (const char c : text) {
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                          (c >= 'A' && c <= 'Z') || plain.contains(c);
    if (is_plain || (is_field && c == ' ')) {
      encoded += is_plain ? c : '+';
    } else {
      encoded += Format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}
Value FilterUrlEncode(const FilterCall& call) {
  call.ExpectNoArguments();
  const Value& input = call.input;
  if (input.is_text() || !IsIterable(input)) return Value(UrlEncoded(TextOf(input), false));
  Arguments none;
  const Value pairs = input.is_dict() ? CallMethod(call.interpreter, input, "items", none) : input;
  std::string encoded;
  for (const Value& pair : ItemsOf(pairs)) {
    const std::vector<Value> parts = ItemsOf(pair);
    if (parts.size() != 2) Raise("urlencode takes pairs of a key and a value");
    if (!encoded.empty()) encoded += '&';
    encoded += UrlEncoded(TextOf(parts[0]), true) + "=" + UrlEncoded(TextOf(parts[1]), true);
  }
  return Value(std::move(encoded));
}

// Comments end at the first "-->", which may share its dashes with their beginning.
std::string WithoutComments(std::string_view text) {
  std::string kept;
  while (!text.empty()) {
    kept += text.front();
    text.remove_prefix(1);
    if (!kept.ends_with("<!--")) continue;
    const size_t shared = text.starts_with('>') ? 1 : text.starts_with("->") ? 2 : 0;
    const size_t end = text.find("-->");
    if (shared == 0 && end == std::string_view::npos) return kept.append(text);
    kept.resize(kept.size() - 4);
    text.remove_prefix(shared > 0 ? shared : end + 3);
  }
  return kept;
}

std::string WithoutTags(std::string_view text) {
  std::string kept;
  while (true) {
    const size_t begin = text.find('<');
    const size_t end = begin == text.npos ? text.npos : text.find('>', begin);
    if (end == text.npos) return kept.append(text);
    kept += text.substr(0, begin);
    text.remove_prefix(end + 1);
  }
}

// Behind "&#": the character of a number and the bytes of both.
std::optional<Character> NumberedCharacter(std::string_view text) {
  const bool is_hex = text.starts_with('x') || text.starts_with('X');
  const char* const begin = text.data() + (is_hex ? 1 : 0);
  uint32_t code = 0;
  const auto read = std::from_chars(begin, text.data() + text.size(), code, is_hex ? 16 : 10);
  if (read.ptr == begin) return std::nullopt;
  const bool is_none =
      read.ec != std::errc() || code == 0 || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF);
  size_t bytes = static_cast<size_t>(read.ptr - text.data());
  if (text.substr(bytes).starts_with(';')) ++bytes;
  return Character{.code_point = is_none ? 0xFFFD : code, .bytes = bytes};
}

// Characters by number and by the names that `escape` and editors write.
std::string Unescaped(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"amp;", "&"},   {"lt;", "<"},   {"gt;", ">"},
      {"quot;", "\""}, {"apos;", "'"}, {"nbsp;", "\u00a0"}};
  std::string made;
  while (!text.empty()) {
    const size_t mark = std::min(text.find('&'), text.size());
    made += text.substr(0, mark);
    text.remove_prefix(mark);
    if (text.empty()) break;
    text.remove_prefix(1);
    if (text.starts_with('#')) {
      if (const auto c = NumberedCharacter(text.substr(1))) {
        AppendCharacter(made, c->code_point);
        text.remove_prefix(1 + c->bytes);
        continue;
      }
    }
    const auto* const named = std::ranges::find_if(
        kNames, [text](const auto& name) { return text.starts_with(name.first); });
    if (named == std::end(kNames)) {
      made += '&';
      continue;
    }
    made += named->second;
    text.remove_prefix(named->first.size());
  }
  return made;
}

Value FilterStripTags(const FilterCall& call) {
  call.ExpectNoArguments();
  Arguments none;
  const std::string plain = WithoutTags(WithoutComments(TextOf(call.input)));
  const Value words = CallMethod(call.interpreter, Value(plain), "split", none);
  std::string joined;
  for (const Value& word : words.list().items) {
    if (!joined.empty()) joined += ' ';
    joined += word.text();
  }
  return Value(Unescaped(joined));
}

Value FilterXmlAttr(const FilterCall& call) {
  ArgumentReader reader = call.Reader();
  const bool begins_with_blank = IsTrue(reader.Take("autospace", Value(true)));
  reader.ExpectEnd();
  if (call.input.is_undefined()) Raise("{}", call.input.why_undefined());
  if (!call.input.is_dict()) Raise("'{}' object has no attribute 'items'", TypeName(call.input));
  std::string made;
  for (const auto& [key, value] : call.input.dict().members()) {
    if (value.is_none() || value.is_undefined()) continue;
    if (!key.is_text()) Raise("expected string or bytes-like object, got '{}'", TypeName(key));
    if (key.text().find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      Raise("Invalid character in attribute name: {}", ReprOf(key));
    }
    if (!made.empty() || begins_with_blank) made += ' ';
    made += Format("{}=\"{}\"", EscapedTextOf(key), EscapedTextOf(value));
  }
  return Value(std::move(made));
}

}  // namespace

const FilterTable& MarkupFilters() {
  static const FilterTable filters{
      {"e", FilterEscape},        {"escape", FilterEscape},       {"forceescape", FilterEscape},
      {"safe", FilterSafe},       {"striptags", FilterStripTags}, {"urlencode", FilterUrlEncode},
      {"xmlattr", FilterXmlAttr},
  };
  return filters;
}

}  // namespace moestro::jinja
