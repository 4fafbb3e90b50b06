// SPDX-License-Identifier: MIT
// Values as text: Python's str() and repr(), and what pprint makes of them.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>

#include "jinja/characters.h"
#include "jinja/failure.h"
#include "jinja/object.h"
#include "jinja/value.h"

namespace moestro::jinja {
namespace {

void AppendEscape(std::string& to, uint32_t code) {
  if (code < 0x100) {
    to += Format("\\x{:02x}", code);
  } else if (code < 0x10000) {
    to += Format("\\u{:04x}", code);
  } else {
    to += Format("\\U{:08x}", code);
  }
}

// A text's repr(): quotes are single unless the text has single ones alone.
void AppendQuoted(std::string& to, std::string_view text) {
  const bool has_single = text.contains('\'');
  const char quote = has_single && !text.contains('"') ? '"' : '\'';
  constexpr std::string_view kShort = "\n\r\t\\";
  constexpr std::string_view kNames = "nrt\\";
  to += quote;
  while (!text.empty()) {
    const Character c = FirstCharacter(text);
    const std::string_view bytes = text.substr(0, c.bytes);
    text.remove_prefix(c.bytes);
    const size_t name = bytes.size() == 1 ? kShort.find(bytes) : std::string_view::npos;
    if (name != std::string_view::npos) {
      to += '\\';
      to += kNames[name];
    } else if (bytes.front() == quote) {
      to += '\\';
      to += quote;
    } else if (!IsPrintable(c.code_point)) {
      AppendEscape(to, c.code_point);
    } else {
      to += bytes;
    }
  }
  to += quote;
}

// Python sorts by its own order where it can, else by the kinds' names.
bool IsBefore(const Value& a, const Value& b) {
  try {
    return IsLess(a, b);
  } catch (const Failure&) {
    return TypeName(a) < TypeName(b);
  }
}

using Member = std::pair<Value, Value>;

std::vector<const Member*> MembersOf(const Dict& dict, bool is_sorted) {
  std::vector<const Member*> members;
  for (const Member& member : dict.members()) members.push_back(&member);
  if (is_sorted) {
    std::ranges::stable_sort(
        members, [](const Member* a, const Member* b) { return IsBefore(a->first, b->first); });
  }
  return members;
}

class ReprWriter {
 public:
  explicit ReprWriter(bool sorts_keys) : sorts_keys_(sorts_keys) {}

  void Append(const Value& value, int level) {
    CheckValueLevel(level);
    if (text_.size() > kMostTextBytes) Raise("a text of more than {} bytes", kMostTextBytes);
    switch (value.kind()) {
      case Value::Kind::kUndefined:
        text_ += "Undefined";
        break;
      case Value::Kind::kNone:
        text_ += "None";
        break;
      case Value::Kind::kBool:
        text_ += value.boolean() ? "True" : "False";
        break;
      case Value::Kind::kInt:
        text_ += std::to_string(value.integer());
        break;
      case Value::Kind::kBigInt:
        text_ += value.digits();
        break;
      case Value::Kind::kFloat:
        text_ += TextOfReal(value.real());
        break;
      case Value::Kind::kText:
        AppendText(value);
        break;
      case Value::Kind::kList:
        AppendList(value, level);
        break;
      case Value::Kind::kDict:
        AppendDict(value.dict(), level);
        break;
      case Value::Kind::kObject:
        text_ += Format("<{} object>", value.object().type_name());
        break;
    }
  }
  std::string& text() { return text_; }

 private:
  void AppendText(const Value& value) {
    if (value.is_escaped()) text_ += "Markup(";
    AppendQuoted(text_, value.text());
    if (value.is_escaped()) text_ += ')';
  }
  void AppendDict(const Dict& dict, int level) {
    text_ += '{';
    bool is_first = true;
    for (const Member* member : MembersOf(dict, sorts_keys_)) {
      if (!is_first) text_ += ", ";
      is_first = false;
      Append(member->first, level + 1);
      text_ += ": ";
      Append(member->second, level + 1);
    }
    text_ += '}';
  }
  void AppendItems(const std::vector<Value>& items, int level) {
    bool is_first = true;
    for (const Value& item : items) {
      if (!is_first) text_ += ", ";
      is_first = false;
      Append(item, level + 1);
    }
  }
  static std::string RangeText(const std::vector<Value>& items) {
    const int64_t first = items.empty() ? 0 : items.front().integer();
    const int64_t step = items.size() < 2 ? 1 : items[1].integer() - first;
    const int64_t end = items.empty() ? 0 : items.back().integer() + step;
    return step == 1 ? Format("range({}, {})", first, end)
                     : Format("range({}, {}, {})", first, end, step);
  }
  void AppendList(const Value& value, int level) {
    const List& list = value.list();
    switch (list.form) {
      case ListForm::kLazy:
        text_ += "<generator object>";
        break;
      case ListForm::kRange:
        text_ += RangeText(list.items);
        break;
      case ListForm::kList:
        text_ += '[';
        AppendItems(list.items, level);
        text_ += ']';
        break;
      case ListForm::kTuple:
      case ListForm::kGroup:
        text_ += '(';
        AppendItems(list.items, level);
        text_ += list.items.size() == 1 ? ",)" : ")";
        break;
      case ListForm::kKeys:
      case ListForm::kValues:
      case ListForm::kItems:
        text_ += TypeName(value);
        text_ += "([";
        AppendItems(list.items, level);
        text_ += "])";
        break;
    }
  }

  const bool sorts_keys_;
  std::string text_;
};

std::string ReprWith(const Value& value, bool sorts_keys) {
  ReprWriter writer(sorts_keys);
  writer.Append(value, 0);
  return std::move(writer.text());
}

// Python's pprint.pformat(): one line, or one value a line where that is too long.
class PrettyPrinter {
 public:
  // The text stands `indent` characters from the left; `allowance` must have room behind it.
  struct Cursor {
    size_t indent = 0;
    size_t allowance = 0;
    int level = 0;
  };

  void Append(const Value& value, Cursor place) {
    CheckValueLevel(place.level);
    const std::string plain = ReprWith(value, /*sorts_keys=*/true);
    const bool fits = CountCharacters(plain) + place.indent + place.allowance <= kWidth;
    ++place.level;
    if (!fits && value.is_dict()) return AppendDict(value.dict(), place);
    if (!fits && value.is_list() && value.list().form == ListForm::kList) {
      return AppendItems(value.list().items, "[", "]", place);
    }
    if (!fits && value.is_tuple()) {
      return AppendItems(value.list().items, "(", value.list().items.size() == 1 ? ",)" : ")",
                         place);
    }
    if (!fits && value.is_text() && !value.is_escaped()) return AppendText(value.text(), place);
    text_ += plain;
    if (text_.size() > kMostTextBytes) Raise("a text of more than {} bytes", kMostTextBytes);
  }
  std::string& text() { return text_; }

 private:
  static constexpr size_t kWidth = 80;

  void NewLine(size_t indent) {
    text_ += '\n';
    text_.append(indent, ' ');
  }

  void AppendDict(const Dict& dict, Cursor place) {
    text_ += '{';
    ++place.indent;
    size_t left = dict.size();
    for (const Member* member : MembersOf(dict, /*is_sorted=*/true)) {
      if (left < dict.size()) NewLine(place.indent);
      --left;
      const std::string key = ReprWith(member->first, /*sorts_keys=*/true) + ": ";
      text_ += key;
      Append(member->second, {.indent = place.indent + CountCharacters(key),
                              .allowance = left == 0 ? place.allowance + 1 : 1,
                              .level = place.level});
      if (left > 0) text_ += ',';
    }
    text_ += '}';
  }

  void AppendItems(const std::vector<Value>& items, std::string_view begin, std::string_view end,
                   Cursor place) {
    text_ += begin;
    ++place.indent;
    for (size_t i = 0; i < items.size(); ++i) {
      const bool is_last = i + 1 == items.size();
      if (i > 0) {
        text_ += ',';
        NewLine(place.indent);
      }
      Append(items[i], {.indent = place.indent,
                        .allowance = is_last ? place.allowance + end.size() : 1,
                        .level = place.level});
    }
    text_ += end;
  }

  static std::string Quoted(std::string_view text) {
    std::string quoted;
    AppendQuoted(quoted, text);
    return quoted;
  }

  // A word and the blanks behind it.
  static size_t WordBytes(std::string_view text) {
    size_t bytes = 0;
    bool is_in_blanks = false;
    while (bytes < text.size()) {
      const Character c = FirstCharacter(text.substr(bytes));
      const bool is_blank = IsBlank(c.code_point);
      if (is_in_blanks && !is_blank) break;
      is_in_blanks = is_blank;
      bytes += c.bytes;
    }
    return bytes;
  }

  // Literals that Python joins: a line each, or words where a line is too long.
  static std::vector<std::string> Literals(std::string_view text, size_t width, size_t allowance) {
    if (text.empty()) return {Quoted(text)};
    std::vector<std::string> literals;
    for (const std::string_view line : SplitLinesWithEnds(text)) {
      const bool is_last_line = line.data() + line.size() == text.data() + text.size();
      std::string whole = Quoted(line);
      if (CountCharacters(whole) + (is_last_line ? allowance : 0) <= width) {
        literals.push_back(std::move(whole));
        continue;
      }
      size_t begin = 0;
      for (size_t at = 0; at < line.size();) {
        const size_t end = at + WordBytes(line.substr(at));
        const bool is_last = is_last_line && end == line.size();
        const size_t length = CountCharacters(Quoted(line.substr(begin, end - begin)));
        if (length + (is_last ? allowance : 0) > width && at > begin) {
          literals.push_back(Quoted(line.substr(begin, at - begin)));
          begin = at;
        }
        at = end;
      }
      literals.push_back(Quoted(line.substr(begin)));
    }
    return literals;
  }

  void AppendText(std::string_view text, Cursor place) {
    const bool is_outermost = place.level == 1;
    if (is_outermost) {
      ++place.indent;
      ++place.allowance;
    }
    const size_t width = place.indent < kWidth ? kWidth - place.indent : 0;
    const std::vector<std::string> literals = Literals(text, width, place.allowance);
    if (literals.size() == 1) {
      text_ += literals.front();
      return;
    }
    if (is_outermost) text_ += '(';
    for (size_t i = 0; i < literals.size(); ++i) {
      if (i > 0) NewLine(place.indent);
      text_ += literals[i];
    }
    if (is_outermost) text_ += ')';
  }

  std::string text_;
};

}  // namespace

std::string TextOf(const Value& value) {
  if (value.is_text()) return value.text();
  if (value.is_undefined()) return {};
  return ReprOf(value);
}

std::string EscapedTextOf(const Value& value) {
  return value.is_escaped() ? value.text() : EscapeHtml(TextOf(value));
}

Value WithEscapesOf(const Value& origin, std::string text) {
  return origin.is_escaped() ? Value::EscapedText(std::move(text)) : Value(std::move(text));
}

std::string ReprOf(const Value& value) { return ReprWith(value, /*sorts_keys=*/false); }

std::string PrettyTextOf(const Value& value) {
  PrettyPrinter printer;
  printer.Append(value, {});
  return std::move(printer.text());
}

std::string TextOfReal(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer{};
  // the fewest digits that give the same number, "d.ddde-07"
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific);
  const std::string_view scientific(buffer.data(), end.ptr);
  const size_t at = scientific.find('e');
  int exponent = 0;
  std::string_view power = scientific.substr(at + 1);
  if (power.starts_with('+')) power.remove_prefix(1);
  std::from_chars(power.data(), power.data() + power.size(), exponent);
  if (exponent < -4 || exponent >= 16) return std::string(scientific);
  const auto fixed =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
  std::string text(buffer.data(), fixed.ptr);
  if (!text.contains('.')) text += ".0";
  return text;
}

}  // namespace moestro::jinja
