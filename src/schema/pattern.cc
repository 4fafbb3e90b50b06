// SPDX-License-Identifier: MIT
#include "schema/pattern.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/text.h"

namespace moestro {
namespace {

RuleId WriteNode(const PatternNode& node, RuleSet& rules) {
  switch (node.kind) {
    case PatternNode::Kind::kSet:
      return rules.Shared(node.set.InJsonString());
    case PatternNode::Kind::kRepeat:
      return rules.Repeated(WriteNode(node.children.front(), rules), node.times);
    case PatternNode::Kind::kChoice: {
      const RuleId rule = rules.Add();
      for (const PatternNode& child : node.children) {
        rules.AddAlternative(rule, RuleBody().Rule(WriteNode(child, rules)));
      }
      return rule;
    }
    case PatternNode::Kind::kSequence:
      break;
  }
  RuleBody body;
  if (node.children.empty()) body.Gbnf("\"\"");
  for (const PatternNode& child : node.children) body.Rule(WriteNode(child, rules));
  return rules.Add(std::move(body));
}

bool Fits(Times length, Times wanted) {
  return length.least >= wanted.least &&
         (!wanted.most || (length.most && *length.most <= *wanted.most));
}

bool MayFit(Times length, Times wanted) {
  return (!wanted.most || length.least <= *wanted.most) &&
         (!length.most || *length.most >= wanted.least);
}

// Limits a sequence that has at most one part of varying length, a repetition of single characters.
Result<bool> LimitSequence(PatternNode& sequence, Times wanted) {
  const Times all = PatternLength(sequence);
  if (Fits(all, wanted)) return true;
  if (!MayFit(all, wanted)) return false;
  PatternNode* counted = nullptr;
  uint64_t fixed = 0;
  for (PatternNode& child : sequence.children) {
    const Times length = PatternLength(child);
    if (length.most == length.least) {
      fixed += length.least;
      continue;
    }
    const bool counts_characters = child.kind == PatternNode::Kind::kRepeat &&
                                   PatternLength(child.children.front()).least == 1 &&
                                   PatternLength(child.children.front()).most == 1U;
    if (counted != nullptr || !counts_characters) {
      return Fail(Errc::kUnsupported, "a limit of the length beside such a pattern");
    }
    counted = &child;
  }
  if (counted == nullptr) return false;  // all parts have fixed lengths, and the sum does not fit
  Times& times = counted->times;
  if (wanted.least > fixed) times.least = std::max(times.least, wanted.least - fixed);
  if (wanted.most) {
    const uint64_t most = *wanted.most - fixed;
    times.most = std::min(times.most.value_or(most), most);
  }
  return times.least <= times.most.value_or(times.least);
}

}  // namespace

Pattern::Pattern(std::unique_ptr<PatternNode> root) : root_(std::move(root)) {}
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

Result<Pattern> Pattern::Parse(std::string_view text) {
  TRY(PatternNode root, ParsePattern(text));
  return Pattern(std::make_unique<PatternNode>(std::move(root)));
}

Result<bool> Pattern::Limit(Times length) {
  std::vector<PatternNode> kept;
  for (PatternNode& alternative : root_->children) {
    TRY(const bool is_left, LimitSequence(alternative, length));
    if (is_left) kept.push_back(std::move(alternative));
  }
  root_->children = std::move(kept);
  return !root_->children.empty();
}

RuleId Pattern::Write(RuleSet& rules) const { return WriteNode(*root_, rules); }

namespace {

using Kind = PatternNode::Kind;

CharSet One(uint32_t c) { return CharSet({{c, c}}); }
CharSet DigitSet() { return CharSet({{'0', '9'}}); }
CharSet WordSet() { return CharSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}); }
// White space and line ends of ECMA-262.
CharSet BlankSet() {
  return CharSet({{'\t', '\r'},
                  {' ', ' '},
                  {0xA0, 0xA0},
                  {0x1680, 0x1680},
                  {0x2000, 0x200A},
                  {0x2028, 0x2029},
                  {0x202F, 0x202F},
                  {0x205F, 0x205F},
                  {0x3000, 0x3000},
                  {0xFEFF, 0xFEFF}});
}
CharSet LineEndSet() { return CharSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}); }

PatternNode SetNode(CharSet set) {
  // An empty class matches nothing: a choice of nothing.
  if (set.is_empty()) return {.kind = Kind::kChoice};
  return {.kind = Kind::kSet, .set = std::move(set)};
}
PatternNode AnyText() {
  PatternNode node{.kind = Kind::kRepeat};
  node.children.push_back(SetNode(CharSet::All()));
  return node;
}

// REQUIRES: the text is UTF-8.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<PatternNode> Whole() {
    PatternNode choice{.kind = Kind::kChoice};
    while (true) {
      PatternNode sequence;
      if (!Take("^")) sequence.children.push_back(AnyText());
      TRY_STATUS(Items(sequence, 0));
      if (!Take("$")) sequence.children.push_back(AnyText());
      choice.children.push_back(std::move(sequence));
      if (at_ == text_.size()) return choice;
      if (!Take("|")) return Unexpected();
    }
  }

 private:
  bool Sees(std::string_view next) const { return text_.substr(at_).starts_with(next); }
  bool Take(std::string_view next) {
    if (!Sees(next)) return false;
    at_ += next.size();
    return true;
  }
  std::unexpected<Error> Unexpected() const {
    return Fail(Errc::kInvalidRequest, "the pattern is no regular expression: byte {}", at_);
  }
  std::unexpected<Error> NotKnown(std::string_view what) const {
    return Fail(Errc::kUnsupported, "a pattern with {} (byte {})", what, at_);
  }

  Result<PatternNode> Alternatives(int depth) {
    if (depth > kMostPatternDepth) return NotKnown("groups nested too deeply");
    PatternNode choice{.kind = Kind::kChoice};
    do {
      PatternNode sequence;
      TRY_STATUS(Items(sequence, depth));
      choice.children.push_back(std::move(sequence));
    } while (Take("|"));
    return choice;
  }

  // Reads items up to |, ) or the end, or up to $ before the end.
  Status Items(PatternNode& sequence, int depth) {
    while (at_ < text_.size() && !Sees("|") && !Sees(")")) {
      if (Sees("$") && depth == 0 && (at_ + 1 == text_.size() || text_[at_ + 1] == '|')) break;
      if (Sees("^") || Sees("$")) return NotKnown("^ or $ inside");
      TRY(PatternNode item, Item(depth));
      TRY(item, Quantified(std::move(item)));
      sequence.children.push_back(std::move(item));
    }
    return {};
  }

  Result<PatternNode> Item(int depth) {
    if (Sees("*") || Sees("+") || Sees("?") || Sees("{") || Sees("}") || Sees("]")) {
      return Unexpected();
    }
    if (Take("(")) {
      if (Sees("?") && !Take("?:")) return NotKnown("a look-around or a named group");
      TRY(PatternNode group, Alternatives(depth + 1));
      if (!Take(")")) return Unexpected();
      return group;
    }
    if (Take(".")) return SetNode(LineEndSet().Complement());
    if (Take("[")) return Class();
    if (Sees("\\")) {
      TRY(CharSet set, Escape(false));
      return SetNode(std::move(set));
    }
    return SetNode(One(Character()));
  }

  Result<uint64_t> Number() {
    uint64_t number = 0;
    const size_t begin = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      number = number * 10 + static_cast<uint64_t>(text_[at_] - '0');
      if (number > RuleSet::kMostTimes) return NotKnown("a large count");
    }
    if (at_ == begin) return Unexpected();
    return number;
  }

  Result<PatternNode> Quantified(PatternNode item) {
    Times times;
    if (Take("*")) {
      times = {};
    } else if (Take("+")) {
      times = {1};
    } else if (Take("?")) {
      times = {0, 1};
    } else if (Take("{")) {
      TRY(times.least, Number());
      times.most = times.least;
      if (Take(",")) {
        times.most.reset();
        if (!Sees("}")) {
          TRY(times.most, Number());
        }
      }
      if (!Take("}") || times.most.value_or(times.least) < times.least) return Unexpected();
    } else {
      return item;
    }
    Take("?");
    if (Sees("*") || Sees("+") || Sees("?") || Sees("{")) return Unexpected();
    // GBNF takes an endless repetition of nothing for left recursion.
    if (PatternLength(item).least == 0 && times.most != 1U) {
      return NotKnown("a repetition of what may be empty");
    }
    PatternNode node{.kind = Kind::kRepeat, .times = times};
    node.children.push_back(std::move(item));
    return node;
  }

  uint32_t Character() {
    const Utf8Sequence sequence = ReadUtf8(text_.substr(at_));
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text_[at_ + i]); };
    constexpr std::array<uint32_t, 5> kFirstBits = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t c = byte(0) & kFirstBits[sequence.length];
    for (size_t i = 1; i < sequence.length; ++i) c = c << 6 | (byte(i) & 0x3FU);
    at_ += sequence.length;
    return c;
  }

  Result<CharSet> Hex(size_t digits) {
    uint32_t c = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      constexpr std::string_view kHexDigits = "0123456789abcdef0123456789ABCDEF";
      const size_t value =
          at_ < text_.size() ? kHexDigits.find(text_[at_]) : std::string_view::npos;
      if (value == std::string_view::npos) return Unexpected();
      c = c * 16 + static_cast<uint32_t>(value % 16);
    }
    if (c >= 0xD800 && c <= 0xDFFF) return NotKnown("half of a surrogate pair");
    return One(c);
  }

  Result<CharSet> Escape(bool in_class) {
    ++at_;
    if (at_ == text_.size()) return Unexpected();
    const char c = text_[at_];
    constexpr std::string_view kPlain = "^$\\.*+?()[]{}|/-\"'#&~!%,:;<=>@`_ ";
    if (kPlain.contains(c)) {
      ++at_;
      return One(static_cast<unsigned char>(c));
    }
    constexpr std::string_view kLetters = "tnrfv";
    constexpr std::string_view kMeanings = "\t\n\r\f\v";
    if (const size_t letter = kLetters.find(c); letter != std::string_view::npos) {
      ++at_;
      return One(static_cast<unsigned char>(kMeanings[letter]));
    }
    if (c == 'b' && in_class) {
      ++at_;
      return One('\b');
    }
    if (Take("x")) return Hex(2);
    if (Take("u")) return Hex(4);
    if (Take("d")) return DigitSet();
    if (Take("D")) return DigitSet().Complement();
    if (Take("w")) return WordSet();
    if (Take("W")) return WordSet().Complement();
    if (Take("s")) return BlankSet();
    if (Take("S")) return BlankSet().Complement();
    return NotKnown("an escape that is not known here");
  }

  // One character of a class, or an escape that stands for several.
  Result<CharSet> ClassItem() {
    if (at_ == text_.size()) return Unexpected();
    if (Sees("\\")) return Escape(true);
    return One(Character());
  }

  Result<PatternNode> Class() {
    const bool is_negated = Take("^");
    std::vector<CharRange> ranges;
    while (!Take("]")) {
      TRY(CharSet item, ClassItem());
      const bool is_range = Sees("-") && !Sees("-]");
      if (is_range) {
        ++at_;
        TRY(const CharSet last, ClassItem());
        if (!IsOne(item) || !IsOne(last)) return Unexpected();
        const CharRange range = {item.ranges()[0].first, last.ranges()[0].first};
        if (range.first > range.last) return Unexpected();
        item = CharSet({range});
      }
      ranges.insert(ranges.end(), item.ranges().begin(), item.ranges().end());
    }
    CharSet set(ranges);
    return SetNode(is_negated ? set.Complement() : std::move(set));
  }
  static bool IsOne(const CharSet& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Result<PatternNode> ParsePattern(std::string_view text) {
  constexpr size_t kLongest = 4096;
  if (text.size() > kLongest) {
    return Fail(Errc::kUnsupported, "a pattern of {} bytes (at most {})", text.size(), kLongest);
  }
  if (const size_t bad = FindInvalidUtf8(text); bad < text.size()) {
    return Fail(Errc::kInvalidRequest, "the pattern is not UTF-8: byte {}", bad);
  }
  return Parser(text).Whole();
}

Times PatternLength(const PatternNode& node) {
  const auto cap = [](uint64_t n) { return std::min(n, RuleSet::kMostTimes); };
  if (node.kind == Kind::kSet) return {1, 1};
  Times length = {0, 0};
  if (node.kind == Kind::kChoice) {
    if (!node.children.empty()) length.least = RuleSet::kMostTimes;
    for (const PatternNode& child : node.children) {
      const Times other = PatternLength(child);
      length.least = std::min(length.least, other.least);
      if (!other.most) length.most.reset();
      if (length.most) length.most = std::max(*length.most, *other.most);
    }
    return length;
  }
  const Times times = node.kind == Kind::kRepeat ? node.times : Times{1, 1};
  for (const PatternNode& child : node.children) {
    const Times other = PatternLength(child);
    length.least = cap(length.least + other.least * times.least);
    if (!length.most || !other.most || !times.most) {
      if (other.most != 0U && times.most != 0U) length.most.reset();
      continue;
    }
    length.most = *length.most + *other.most * *times.most;
    if (*length.most > RuleSet::kMostTimes) length.most.reset();
  }
  return length;
}

namespace {

// RFC 3339. The 29th of February only in leap years; no leap seconds.
constexpr std::string_view kDate =
    "(\\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"
    "02-(0[1-9]|1\\d|2[0-8]))|"
    "(\\d\\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)";
constexpr std::string_view kTime =
    "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?([Zz]|[+-]([01]\\d|2[0-3]):[0-5]\\d)";
constexpr std::string_view kHex = "[0-9a-fA-F]";
constexpr std::string_view kByte = "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
// A name may have 255 bytes: four labels at most stay below that.
constexpr std::string_view kLabel = "[A-Za-z0-9]([A-Za-z0-9-]{0,60}[A-Za-z0-9])?";

}  // namespace

std::optional<std::string> PatternOfFormat(std::string_view format) {
  if (format == "date") return Format("^{}$", kDate);
  if (format == "time") return Format("^{}$", kTime);
  if (format == "date-time") return Format("^{}[Tt]{}$", kDate, kTime);
  if (format == "uuid") return Format("^{0}{{8}}-({0}{{4}}-){{3}}{0}{{12}}$", kHex);
  if (format == "ipv4") return Format("^({0}\\.){{3}}{0}$", kByte);
  const std::string host = Format("{0}(\\.{0}){{0,3}}", kLabel);
  if (format == "hostname") return Format("^{}$", host);
  // The local part has at most 64 bytes.
  if (format == "email") return Format("^[\\w+-]{{1,20}}(\\.[\\w+-]{{1,20}}){{0,2}}@{}$", host);
  if (format == "uri") {
    constexpr std::string_view kFree = "([\\w.~!$&'()*+,;=:-]|%[0-9a-fA-F]{2})";
    constexpr std::string_view kPath = "([\\w.~!$&'()*+,;=:@/-]|%[0-9a-fA-F]{2})";
    return Format(
        "^[A-Za-z][A-Za-z0-9+.-]*:(//({0}*@)?{1}(:\\d{{1,5}})?(/{2}*)?|{0}{2}*)(\\?{2}*)?(#{2}*)?$",
        kFree, host, kPath);
  }
  return std::nullopt;
}

bool IsStandardFormat(std::string_view format) {
  constexpr std::array<std::string_view, 19> kNames = {"date",          "date-time",
                                                       "duration",      "email",
                                                       "hostname",      "idn-email",
                                                       "idn-hostname",  "ipv4",
                                                       "ipv6",          "iri",
                                                       "iri-reference", "json-pointer",
                                                       "regex",         "relative-json-pointer",
                                                       "time",          "uri",
                                                       "uri-reference", "uri-template",
                                                       "uuid"};
  return std::ranges::contains(kNames, format);
}

}  // namespace moestro
