// SPDX-License-Identifier: MIT
#include "schema/schema_writer.h"

#include <algorithm>
#include <array>
#include <utility>

namespace moestro {
namespace {

constexpr std::string_view kBlank = "json-ws";

bool RestrictsNothing(const Constraint& c) {
  const auto is_free = [](const Times& times) { return times.least == 0 && !times.most; };
  return c.kinds == kAllKinds && !c.values && !c.number.is_integer && !c.number.low &&
         !c.number.high && is_free(c.length) && c.patterns.empty() && is_free(c.items) &&
         c.first_items.empty() && c.other_items.empty() && is_free(c.members) &&
         c.properties.empty() && c.required.empty() && c.other_properties.empty() &&
         std::ranges::all_of(c.unsupported, &std::string::empty) &&
         std::ranges::all_of(c.left_out, &std::set<std::string>::empty);
}

}  // namespace

Result<RuleId> SchemaWriter::Write(NodeId place, KindSet kinds) {
  const RuleId first = RuleFor({place});
  while (!to_write_.empty()) {
    current_ = std::move(to_write_.back());
    to_write_.pop_back();
    TRY(const SchemaReader::Cases cases, reader_.Read(current_));
    const RuleId rule = known_.at(current_);
    for (Constraint constraint : cases) {
      if (rule == first) constraint.kinds &= kinds;
      TRY_STATUS(WriteCase(constraint, rule));
    }
    TRY_STATUS(CheckSize());
  }
  return first;
}

Status SchemaWriter::CheckSize() const {
  if (rules_.size() <= kMostRules) return {};
  return Fail(Errc::kUnsupported, "the schema needs more than {} rules; make it smaller",
              kMostRules);
}

RuleId SchemaWriter::RuleFor(const NodeSet& places) {
  if (places.empty()) return rules_.Shared("json-value");
  if (const auto found = known_.find(places); found != known_.end()) return found->second;
  const RuleId rule = rules_.Add();
  known_.emplace(places, rule);
  to_write_.push_back(places);
  return rule;
}

std::unexpected<Error> SchemaWriter::Unsupported(const std::string& what) const {
  return Fail(Errc::kUnsupported, "{}: {}", reader_.Where(current_), what);
}

bool SchemaWriter::LeavesOut(const std::string& what) {
  if (reader_.leaves_out()) reader_.NoteLeftOut(Format("{}: {}", reader_.Where(current_), what));
  return reader_.leaves_out();
}

Status SchemaWriter::WriteCase(const Constraint& constraint, RuleId rule) {
  if (RestrictsNothing(constraint)) {
    rules_.AddAlternative(rule, RuleBody().Gbnf("json-value"));
    return {};
  }
  if (constraint.values) {
    for (const JsonView value : *constraint.values) {
      TRY(const bool accepts, reader_.AcceptsOwn(constraint, value));
      if (accepts) rules_.AddAlternative(rule, ValueBody(value));
    }
    return {};
  }
  for (const JsonKind kind : kEveryJsonKind) {
    if (constraint.Has(kind)) TRY_STATUS(WriteKind(kind, constraint, rule));
  }
  return {};
}

Status SchemaWriter::WriteKind(JsonKind kind, const Constraint& constraint, RuleId rule) {
  const std::string& why = constraint.unsupported[static_cast<size_t>(kind)];
  if (!why.empty()) return Fail(Errc::kUnsupported, "{}", why);
  reader_.NoteLeftOut(constraint, kind);
  switch (kind) {
    case JsonKind::kNull:
      rules_.AddAlternative(rule, RuleBody().Text("null"));
      return {};
    case JsonKind::kBoolean:
      rules_.AddAlternative(rule, RuleBody().Gbnf("json-boolean"));
      return {};
    case JsonKind::kNumber:
      return WriteNumber(constraint, rule);
    case JsonKind::kText:
      return WriteString(constraint, rule);
    case JsonKind::kArray:
      return WriteArray(constraint, rule);
    case JsonKind::kObject:
      break;
  }
  return WriteObject(constraint, rule);
}

Status SchemaWriter::WriteNumber(const Constraint& constraint, RuleId rule) {
  const NumberRange& range = constraint.number;
  if (!range.low && !range.high) {
    rules_.AddAlternative(rule, RuleBody().Gbnf(range.is_integer ? "json-integer" : "json-number"));
    return {};
  }
  const auto gbnf = NumberRangeGbnf(range);
  if (!gbnf) return Unsupported(gbnf.error().message);
  if (!gbnf->empty()) rules_.AddAlternative(rule, RuleBody().Gbnf(*gbnf));
  return {};
}

// The pattern, restricted to the length as far as that can be expressed. nullopt: no text has that
// length.
Result<std::optional<Pattern>> SchemaWriter::Limited(const std::string& text, const Times& length) {
  const std::array<Times, 4> wishes = {length, Times{.least = 0, .most = length.most},
                                       Times{.least = length.least}, Times()};
  for (const Times& wish : wishes) {
    TRY(Pattern pattern, Pattern::Parse(text));
    const auto is_left = pattern.Limit(wish);
    if (!is_left && !reader_.leaves_out()) return Unsupported(is_left.error().message);
    if (!is_left) continue;
    const auto note = [&](std::string_view keyword) {
      reader_.NoteLeftOut(Format("{}: \"{}\" beside such a \"pattern\" or \"format\"",
                                 reader_.Where(current_), keyword));
    };
    if (wish.least != length.least) note("minLength");
    if (wish.most != length.most) note("maxLength");
    if (!*is_left) return std::nullopt;
    return pattern;
  }
  return std::nullopt;
}

// Writes the first pattern that can be expressed. False: none can.
Result<bool> SchemaWriter::WritePatterns(const Constraint& constraint, RuleId rule) {
  bool is_said = false;
  for (const auto& [text, keyword] : constraint.patterns) {
    if (is_said) {
      const std::string another = Format("{} beside another pattern or format", keyword);
      if (!reader_.leaves_out()) return Fail(Errc::kUnsupported, "{}", another);
      reader_.NoteLeftOut(another);
      continue;
    }
    const auto parsed = Pattern::Parse(text);
    if (!parsed) {
      const Error& error = parsed.error();
      const bool may_be_left_out = error.code == Errc::kUnsupported && reader_.leaves_out();
      if (!may_be_left_out) {
        return Fail(error.code, "{}: {}", reader_.Where(current_), error.message);
      }
      reader_.NoteLeftOut(Format("{} ({})", keyword, error.message));
      continue;
    }
    TRY(const std::optional<Pattern> pattern, Limited(text, constraint.length));
    is_said = true;
    if (!pattern) continue;
    rules_.AddAlternative(rule, RuleBody().Text("\"").Rule(pattern->Write(rules_)).Text("\""));
  }
  return is_said;
}

// The times, reduced to numbers that a grammar can count.
Result<Times> SchemaWriter::Countable(Times times, std::string_view keyword) {
  if (times.least <= RuleSet::kMostTimes) return times;
  const std::string above = Format("\"{}\" above {}", keyword, RuleSet::kMostTimes);
  if (!LeavesOut(above)) return Unsupported(above);
  times.least = RuleSet::kMostTimes;
  if (times.most) times.most = std::max(*times.most, times.least);
  return times;
}

Status SchemaWriter::WriteString(const Constraint& constraint, RuleId rule) {
  TRY(const bool is_said, WritePatterns(constraint, rule));
  if (is_said) return {};
  TRY(const Times length, Countable(constraint.length, "minLength"));
  if (length.least == 0 && !length.most) {
    rules_.AddAlternative(rule, RuleBody().Gbnf("json-string"));
  } else {
    const RuleId inside = rules_.Repeated(rules_.Shared("json-char"), length);
    rules_.AddAlternative(rule, RuleBody().Text("\"").Rule(inside).Text("\""));
  }
  return {};
}

Result<bool> SchemaWriter::IsImpossible(const NodeSet& places) {
  if (places.empty()) return false;
  TRY(const SchemaReader::Cases cases, reader_.Read(places));
  return cases.empty();
}

// Writes an array. `rest` is the rule for the text that may follow an item.
Status SchemaWriter::WriteArray(const Constraint& constraint, RuleId rule) {
  TRY(const Times items, Countable(constraint.items, "minItems"));
  const auto [least, most] = items;
  if (least == 0) rules_.AddAlternative(rule, RuleBody().Text("[").Gbnf(kBlank).Text("]"));
  if (most == 0U) return {};
  const size_t n_first = std::max<size_t>(constraint.first_items.size(), 1);
  RuleId rest = rules_.Add();
  if (least <= n_first) rules_.AddAlternative(rest, RuleBody().Gbnf("\"\""));
  if (!most || *most > n_first) {
    const RuleId other =
        rules_.Add(RuleBody().Text(",").Gbnf(kBlank).Rule(RuleFor(constraint.other_items)));
    const Times times = {std::max<uint64_t>(least > n_first ? least - n_first : 0, 1),
                         most ? std::optional(*most - n_first) : std::nullopt};
    rules_.AddAlternative(rest, RuleBody().Rule(rules_.Repeated(other, times)));
  }
  for (size_t i = n_first; i-- > 1;) {
    const RuleId next = rest;
    rest = rules_.Add();
    if (least <= i) rules_.AddAlternative(rest, RuleBody().Gbnf("\"\""));
    if (most && *most <= i) continue;
    rules_.AddAlternative(
        rest, RuleBody().Text(",").Gbnf(kBlank).Rule(RuleFor(constraint.Item(i))).Rule(next));
  }
  rules_.AddAlternative(rule, RuleBody()
                                  .Text("[")
                                  .Gbnf(kBlank)
                                  .Rule(RuleFor(constraint.Item(0)))
                                  .Rule(rest)
                                  .Gbnf(kBlank)
                                  .Text("]"));
  return {};
}

}  // namespace moestro
