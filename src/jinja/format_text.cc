// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "jinja/characters.h"
#include "jinja/failure.h"
#include "jinja/interpreter.h"
#include "jinja/object.h"

namespace moestro::jinja {
namespace {

constexpr size_t kMostFormatWidth = 100'000;
constexpr int kMostPrecision = 500;

// The format of one value: [[fill]align][sign][#][0][width][,][.precision][type].
struct Form {
  std::string fill = " ";
  char align = '\0';  // '<', '>', '^', '='; 0: texts left, numbers right
  char sign = '-';    // '-', '+', ' '
  bool is_alternate = false;
  char group = '\0';  // ',' or '_' between thousands
  size_t width = 0;
  int precision = -1;
  char type = '\0';
};

size_t ReadSize(std::string_view& text) {
  size_t n = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), n);
  if (read.ec == std::errc::result_out_of_range || n > kMostFormatWidth) {
    Raise("a width of more than {} in a format", kMostFormatWidth);
  }
  text.remove_prefix(static_cast<size_t>(read.ptr - text.data()));
  return n;
}

int ReadPrecision(std::string_view& text) {
  const size_t precision = ReadSize(text);
  if (precision > static_cast<size_t>(kMostPrecision)) {
    Raise("a precision of more than {} in a format", kMostPrecision);
  }
  return static_cast<int>(precision);
}

bool IsDigitNext(std::string_view text) {
  return !text.empty() && text.front() >= '0' && text.front() <= '9';
}

Form ReadForm(std::string_view text) {
  constexpr std::string_view kAligns = "<>^=";
  Form form;
  const size_t first = text.empty() ? 0 : FirstCharacter(text).bytes;
  if (first > 0 && first < text.size() && kAligns.contains(text[first])) {
    form.fill = text.substr(0, first);
    form.align = text[first];
    text.remove_prefix(first + 1);
  } else if (!text.empty() && kAligns.contains(text.front())) {
    form.align = text.front();
    text.remove_prefix(1);
  }
  const auto take = [&text](std::string_view any) {
    if (text.empty() || !any.contains(text.front())) return '\0';
    const char c = text.front();
    text.remove_prefix(1);
    return c;
  };
  if (const char sign = take("+- ")) form.sign = sign;
  form.is_alternate = take("#") != '\0';
  if (take("0") != '\0' && form.align == '\0') {
    form.fill = "0";
    form.align = '=';
  }
  if (IsDigitNext(text)) form.width = ReadSize(text);
  form.group = take(",_");
  if (take(".") != '\0') {
    if (!IsDigitNext(text)) Raise("a format's precision is missing");
    form.precision = ReadPrecision(text);
  }
  form.type = take("bcdeEfFgGnosxX%");
  if (!text.empty()) Raise("'{}' is no format that is known", text);
  return form;
}

// `digits` may begin with a sign, behind which '=' fills.
std::string Padded(const Form& form, std::string digits, bool is_number) {
  const size_t length = CountCharacters(digits);
  if (length >= form.width) return digits;
  size_t missing = form.width - length;
  const auto fill = [&form](size_t n) {
    std::string filled;
    for (size_t i = 0; i < n; ++i) filled += form.fill;
    return filled;
  };
  const char align = form.align != '\0' ? form.align : is_number ? '>' : '<';
  if (align == '<') return digits + fill(missing);
  if (align == '>') return fill(missing) + digits;
  if (align == '^') {
    const size_t left = missing / 2;
    return fill(left) + digits + fill(missing - left);
  }
  const size_t sign = digits.starts_with('-') || digits.starts_with('+') || digits.starts_with(' ');
  return digits.insert(sign, fill(missing));
}

std::string WithGroups(std::string digits, char group) {
  if (group == '\0') return digits;
  const size_t begin = digits.find_first_of("0123456789");
  size_t end = digits.find_first_not_of("0123456789", begin);
  if (end == std::string::npos) end = digits.size();
  for (size_t at = end; at > begin + 3;) {
    at -= 3;
    digits.insert(at, 1, group);
  }
  return digits;
}

std::string WithSign(std::string digits, char sign) {
  if (sign != '-' && !digits.starts_with('-')) digits.insert(0, 1, sign);
  return digits;
}

std::string IntegerDigits(const Form& form, const Value& value) {
  const int base = form.type == 'x' || form.type == 'X' ? 16
                   : form.type == 'o'                   ? 8
                   : form.type == 'b'                   ? 2
                                                        : 10;
  if (value.kind() == Value::Kind::kBigInt && base == 10) {
    return WithSign(WithGroups(value.digits(), form.group), form.sign);
  }
  const int64_t number = WholeOf(value, "a number of a format");
  std::array<char, 80> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number, base);
  std::string digits(buffer.data(), end.ptr);
  if (form.is_alternate && base != 10) {
    const char name = form.type == 'X' ? 'x' : form.type;
    digits.insert(digits.starts_with('-') ? 1 : 0, std::string{'0', name});
  }
  if (form.type == 'X') digits = Upper(digits);
  return WithSign(WithGroups(std::move(digits), form.group), form.sign);
}

std::string RealDigits(const Form& form, double value) {
  if (form.type == '\0' && form.precision < 0) {
    return WithSign(WithGroups(TextOfReal(value), form.group), form.sign);
  }
  const bool is_percent = form.type == '%';
  const char type = form.type == '\0' || form.type == 'n' ? 'g' : is_percent ? 'f' : form.type;
  const int precision = form.precision < 0 ? 6 : form.precision;
  if (is_percent) value *= 100;
  std::string digits;
  if (std::isnan(value) || std::isinf(value)) {
    digits = TextOfReal(value);
  } else {
    const bool is_scientific = type == 'e' || type == 'E';
    const bool is_general = type == 'g' || type == 'G';
    const auto how = is_scientific ? std::chars_format::scientific
                     : is_general  ? std::chars_format::general
                                   : std::chars_format::fixed;
    std::array<char, kMostPrecision + 400> buffer{};  // 309 digits before the point
    const auto end =
        std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, how, precision);
    digits.assign(buffer.data(), end.ptr);
    if (type == 'E' || type == 'G') digits = Upper(digits);
  }
  digits = WithSign(WithGroups(std::move(digits), form.group), form.sign);
  if (form.type == '\0' && digits.find_first_of(".en") == std::string::npos) digits += ".0";
  return is_percent ? digits + "%" : digits;
}

bool IsRealType(char type) { return std::string_view("eEfFgG%").contains(type) && type != '\0'; }

// A value in the spelling of format().
std::string Formatted(const Value& value, std::string_view text) {
  if (text.empty()) return TextOf(value);
  const Form form = ReadForm(text);
  const bool is_number = value.is_number();
  if (!is_number && !value.is_text() && !value.is_undefined()) {
    Raise("unsupported format string passed to {}.__format__", TypeName(value));
  }
  if (!is_number && form.group != '\0') Raise("Cannot specify '{}' with 's'.", form.group);
  if (!is_number || form.type == 's') {
    if (form.type != '\0' && form.type != 's') {
      Raise("unknown format code '{}' for an object of type '{}'", form.type, TypeName(value));
    }
    if (is_number) Raise("unknown format code 's' for an object of type '{}'", TypeName(value));
    std::string said = TextOf(value);
    if (form.precision >= 0) said.resize(ByteOf(said, static_cast<size_t>(form.precision)));
    return Padded(form, std::move(said), /*is_number=*/false);
  }
  if (form.type == 'c') {
    std::string character;
    AppendCharacter(character, static_cast<uint32_t>(WholeOf(value, "a character") & 0x1FFFFF));
    return Padded(form, std::move(character), /*is_number=*/true);
  }
  const bool is_real = value.kind() == Value::Kind::kFloat || IsRealType(form.type);
  return Padded(form, is_real ? RealDigits(form, RealOf(value)) : IntegerDigits(form, value),
                /*is_number=*/true);
}

class PercentFormatter {
 public:
  PercentFormatter(const Value& text, const Value& values)
      : left_(text.text()), values_(values), escapes_(text.is_escaped()) {}

  std::string Run() {
    while (!left_.empty()) {
      const size_t percent = std::min(left_.find('%'), left_.size());
      text_ += left_.substr(0, percent);
      left_.remove_prefix(percent);
      if (left_.empty()) break;
      left_.remove_prefix(1);
      ReadField();
    }
    const bool is_left = values_.is_tuple()
                             ? next_ < values_.list().items.size()
                             : next_ == 0 && !values_.is_dict() && !values_.is_list();
    if (is_left) Raise("not all arguments converted during string formatting");
    return std::move(text_);
  }

 private:
  Value Next() {
    if (!values_.is_tuple()) {
      if (next_++ > 0) Raise("not enough arguments for format string");
      return values_;
    }
    if (next_ >= values_.list().items.size()) Raise("not enough arguments for format string");
    return values_.list().items[next_++];
  }
  Value Named() {
    const size_t end = left_.find(')');
    if (end == std::string_view::npos) Raise("incomplete format key");
    const std::string_view name = left_.substr(1, end - 1);
    left_.remove_prefix(end + 1);
    const Value* value = values_.is_dict() ? values_.dict().Find(name) : nullptr;
    if (value == nullptr) Raise("a format asks for '{}', which is not given", name);
    return *value;
  }
  size_t ReadWidth() {
    if (!left_.starts_with('*')) return IsDigitNext(left_) ? ReadSize(left_) : 0;
    left_.remove_prefix(1);
    const int64_t width = WholeOf(Next(), "a format's width");
    if (width < 0 || static_cast<size_t>(width) > kMostFormatWidth) {
      Raise("a width of more than {} in a format", kMostFormatWidth);
    }
    return static_cast<size_t>(width);
  }
  // Behind "%".
  void ReadField() {
    if (left_.starts_with('%')) {
      text_ += '%';
      left_.remove_prefix(1);
      return;
    }
    const bool is_named = left_.starts_with('(');
    const Value named = is_named ? Named() : Value();
    Form form;
    form.align = '>';
    bool has_zeros = false;
    while (!left_.empty() && std::string_view("-+ #0").contains(left_.front())) {
      const char flag = left_.front();
      left_.remove_prefix(1);
      if (flag == '-') form.align = '<';
      if (flag == '+' || (flag == ' ' && form.sign != '+')) form.sign = flag;
      if (flag == '#') form.is_alternate = true;
      if (flag == '0') has_zeros = true;
    }
    form.width = ReadWidth();
    if (left_.starts_with('.')) {
      left_.remove_prefix(1);
      form.precision = IsDigitNext(left_) ? ReadPrecision(left_) : 0;
    }
    while (!left_.empty() && std::string_view("hlL").contains(left_.front()))
      left_.remove_prefix(1);
    if (left_.empty()) Raise("incomplete format");
    form.type = left_.front();
    left_.remove_prefix(1);
    Write(form, has_zeros, is_named ? named : Next());
  }
  void Write(Form& form, bool has_zeros, const Value& value) {
    if (form.type == 's' || form.type == 'r') {
      std::string said = form.type == 'r' ? ReprOf(value) : TextOf(value);
      if (escapes_) said = form.type == 'r' ? EscapeHtml(said) : EscapedTextOf(value);
      if (form.precision >= 0) said.resize(ByteOf(said, static_cast<size_t>(form.precision)));
      text_ += Padded(form, std::move(said), false);
      return;
    }
    if (value.is_undefined()) Raise("{}", value.why_undefined());
    if (form.type == 'i' || form.type == 'u') form.type = 'd';
    if (!std::string_view("dxXoeEfFgG").contains(form.type)) {
      Raise("unsupported format character '{}'", form.type);
    }
    if (!value.is_number()) {
      Raise("%{} format: a real number is required, not {}", form.type, TypeName(value));
    }
    if (has_zeros && form.align == '>') {
      form.fill = "0";
      form.align = '=';
    }
    if (IsRealType(form.type)) {
      text_ += Padded(form, RealDigits(form, RealOf(value)), true);
    } else {
      const bool is_real = value.kind() == Value::Kind::kFloat;
      text_ += Padded(form, IntegerDigits(form, is_real ? WholePartOf(value.real()) : value), true);
    }
  }

  std::string_view left_;
  const Value& values_;
  const bool escapes_;  // what is put into an escaped text
  size_t next_ = 0;
  std::string text_;
};

class BraceFormatter {
 public:
  BraceFormatter(Interpreter& interpreter, const Arguments& arguments, bool escapes)
      : interpreter_(interpreter), arguments_(arguments), escapes_(escapes) {}

  // `level`: depth of formats within fields.
  std::string Run(std::string_view text, int level) {
    std::string made;
    while (!text.empty()) {
      const size_t brace = std::min(text.find_first_of("{}"), text.size());
      made += text.substr(0, brace);
      text.remove_prefix(brace);
      if (text.empty()) break;
      if (text.size() > 1 && text[0] == text[1]) {
        made += text.front();
        text.remove_prefix(2);
        continue;
      }
      if (text.front() == '}') Raise("Single '}}' encountered in format string");
      const size_t end = EndOfField(text);
      made += Field(text.substr(1, end - 1), level);
      text.remove_prefix(end + 1);
    }
    return made;
  }

 private:
  static size_t EndOfField(std::string_view text) {
    int open = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '{') ++open;
      if (text[i] == '}' && --open == 0) return i;
    }
    Raise("expected '}}' before end of string");
  }
  std::string Field(std::string_view field, int level) {
    if (level > 1) Raise("Max string recursion exceeded");
    const size_t colon = std::min(field.find(':'), field.size());
    std::string_view name = field.substr(0, colon);
    char conversion = '\0';
    if (name.size() >= 2 && name[name.size() - 2] == '!') {
      conversion = name.back();
      name.remove_suffix(2);
    }
    Value value = ValueOf(name);
    if (conversion == 's') value = Value(TextOf(value));
    if (conversion == 'r') value = Value(ReprOf(value));
    const std::string_view form = colon < field.size() ? field.substr(colon + 1) : "";
    const std::string made = Formatted(value, Run(form, level + 1));
    return escapes_ && !value.is_escaped() ? EscapeHtml(made) : made;
  }
  Value ValueOf(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = First(name.substr(0, end));
    name.remove_prefix(end);
    while (!name.empty()) {
      const bool is_item = name.front() == '[';
      name.remove_prefix(1);
      const size_t stop =
          std::min(is_item ? name.find(']') : name.find_first_of(".["), name.size());
      const std::string_view key = name.substr(0, stop);
      name.remove_prefix(std::min(stop + (is_item ? 1 : 0), name.size()));
      value =
          is_item ? interpreter_.GetItem(value, KeyOf(key)) : interpreter_.GetAttribute(value, key);
    }
    return value;
  }
  static Value KeyOf(std::string_view key) {
    int64_t index = 0;
    const auto read = std::from_chars(key.data(), key.data() + key.size(), index);
    return read.ec == std::errc() && read.ptr == key.data() + key.size() ? Value(index)
                                                                         : Value(key);
  }
  Value First(std::string_view name) {
    if (!name.empty() && !IsDigitNext(name)) {
      for (const auto& [key, value] : arguments_.named) {
        if (key == name) return value;
      }
      Raise("a format asks for '{}', which is not given", name);
    }
    const size_t place = name.empty() ? next_++ : ReadSize(name);
    if (place >= arguments_.values.size()) {
      Raise("Replacement index {} out of range for positional args tuple", place);
    }
    return arguments_.values[place];
  }

  Interpreter& interpreter_;
  const Arguments& arguments_;
  const bool escapes_;  // what is put into an escaped text
  size_t next_ = 0;
};

}  // namespace

Value FormatPercent(const Value& text, const Value& values) {
  return WithEscapesOf(text, PercentFormatter(text, values).Run());
}

Value FormatBraces(Interpreter& interpreter, const Value& text, const Arguments& arguments) {
  BraceFormatter formatter(interpreter, arguments, text.is_escaped());
  return WithEscapesOf(text, formatter.Run(text.text(), 0));
}

}  // namespace moestro::jinja
