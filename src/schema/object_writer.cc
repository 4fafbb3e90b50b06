// SPDX-License-Identifier: MIT
// Objects: members in any order, optional ones left out or not, with others between.
#include <algorithm>
#include <map>

#include "base/format.h"
#include "base/utf8.h"
#include "schema/member_order.h"
#include "schema/schema_writer.h"
#include "schema/text_set.h"

namespace moestro {
namespace {

constexpr std::string_view kSpace = "json-ws";
// Work for a character: a rule with a class of characters is made.
constexpr size_t kWorkOfCharacter = 16;

std::string JsonText(std::string_view text) { return Json(text).Dump(); }

// Characters of a name in one spelling only, escaped only where JSON requires that: else "\u0061"
// would be another way to write "a", and a known name could come twice.
std::string NameCharacters() { return CharSet::All().InJsonString(); }

// A tree of names by their characters, for the rule of all other names. Nodes refer to each other
// by number: with pointers, destroying the tree would recurse as deep as the longest name.
struct NameNode {
  std::map<uint32_t, size_t> next;
  bool ends_name = false;
};

uint32_t FirstCharacter(std::string_view text, size_t length) {
  uint32_t c = static_cast<unsigned char>(text[0]);
  if (length == 2) c &= 0x1FU;
  if (length == 3) c &= 0x0FU;
  if (length == 4) c &= 0x07U;
  for (size_t i = 1; i < length; ++i) c = c << 6 | (static_cast<unsigned char>(text[i]) & 0x3FU);
  return c;
}

}  // namespace

Status SchemaWriter::WriteObject(const Constraint& constraint, RuleId rule) {
  auto [least, most] = constraint.members;
  const size_t n_required = constraint.required.size();
  if (least > std::max<size_t>(n_required, 1)) {
    constexpr const char* kLeast = "minProperties above the number of required properties";
    if (!LeavesOut(kLeast)) return Unsupported(kLeast);
    least = std::max<size_t>(n_required, 1);
  }
  Constraint described = constraint;
  const auto known = constraint.PropertyIndex();
  for (const std::string& name : constraint.required) {
    if (!known.contains(name)) described.properties.emplace_back(name, constraint.other_properties);
  }
  TRY(const bool is_closed, IsImpossible(described.other_properties));
  const bool only_required = most == n_required;
  if (most && !only_required && !(is_closed && described.properties.size() <= *most)) {
    constexpr const char* kMost = "maxProperties beside properties that may be left out";
    if (!LeavesOut(kMost)) return Unsupported(kMost);
    most.reset();
  }
  if (n_required == 0 && least == 0) {
    rules_.AddAlternative(rule, RuleBody().Text("{").Gbnf(kSpace).Text("}"));
  }
  if (most == 0U) return {};
  const bool with_others = !only_required && !is_closed;
  if (with_others) TRY_STATUS(CheckNames(described));
  rules_.AddAlternative(rule, RuleBody()
                                  .Text("{")
                                  .Gbnf(kSpace)
                                  .Rule(Members(described, !only_required, with_others))
                                  .Gbnf(kSpace)
                                  .Text("}"));
  return {};
}

// A schema may name 10,000 properties, and a name may have 200,000 characters; each character may
// be a rule.
Status SchemaWriter::CheckNames(const Constraint& constraint) {
  size_t characters = 0;
  for (const auto& [name, places] : constraint.properties) characters += CountCharacters(name);
  if (characters > kMostRules) {
    return Unsupported(
        Format("the names of its properties need more than {} rules to allow others "
               "beside them; set \"additionalProperties\" to false",
               kMostRules));
  }
  return reader_.Spend(characters * kWorkOfCharacter);
}

// At least one member.
RuleId SchemaWriter::Members(const Constraint& constraint, bool with_optional, bool with_others) {
  MemberList list;
  list.separator.Text(",").Gbnf(kSpace);
  if (with_others) list.others = OtherMember(constraint);
  for (const auto& [name, places] : constraint.properties) {
    const bool is_required = constraint.required.contains(name);
    if (!is_required && !with_optional) continue;
    RuleBody member;
    member.Text(JsonText(name) + ":").Gbnf(kSpace).Rule(RuleFor(places));
    list.members.push_back({.rule = rules_.Add(std::move(member)), .is_required = is_required});
  }
  const auto many = reader_.leaves_out() ? ManyMembers::kRepeat : ManyMembers::kInOrder;
  const MemberRules written = MemberOrder(rules_, order_steps_).Write(list, many);
  if (written.may_repeat) {
    LeavesOut(Format("that each of its {} properties comes once", list.members.size()));
  }
  return written.rule;
}

RuleId SchemaWriter::OtherMember(const Constraint& constraint) {
  return rules_.Add(RuleBody()
                        .Text("\"")
                        .Rule(OtherName(constraint))
                        .Text("\":")
                        .Gbnf(kSpace)
                        .Rule(RuleFor(constraint.other_properties)));
}

// One rule for each beginning of a known name: the name may end here unless it is known, go on like
// a known name, or differ from all known names.
RuleId SchemaWriter::OtherName(const Constraint& constraint) {
  std::vector<NameNode> nodes(1);
  for (const auto& [name, places] : constraint.properties) {
    size_t node = 0;
    for (std::string_view left = name; !left.empty();) {
      const size_t length = ReadUtf8(left).length;
      const auto [next, is_new] =
          nodes[node].next.try_emplace(FirstCharacter(left, length), nodes.size());
      node = next->second;
      if (is_new) nodes.emplace_back();
      left.remove_prefix(length);
    }
    nodes[node].ends_name = true;
  }
  const RuleId any_rest = rules_.Repeated(rules_.Shared(NameCharacters()), {});
  const RuleId first = rules_.Add();
  std::vector<std::pair<size_t, RuleId>> open = {{0, first}};
  while (!open.empty()) {
    const auto [node, rule] = open.back();
    open.pop_back();
    if (!nodes[node].ends_name) rules_.AddAlternative(rule, RuleBody().Gbnf("\"\""));
    std::vector<CharRange> known;
    for (const auto& [c, next] : nodes[node].next) {
      known.push_back({c, c});
      const RuleId below = rules_.Add();
      const RuleId character = rules_.Shared(CharSet({{c, c}}).InJsonString());
      rules_.AddAlternative(rule, RuleBody().Rule(character).Rule(below));
      open.emplace_back(next, below);
    }
    const CharSet others = CharSet(known).Complement();
    rules_.AddAlternative(rule,
                          RuleBody().Rule(rules_.Shared(others.InJsonString())).Rule(any_rest));
  }
  return first;
}

// A fixed value, with the same blanks between its parts as other values.
RuleBody SchemaWriter::ValueBody(JsonView value) const {
  RuleBody body;
  const bool is_list = value.kind() == JsonKind::kArray;
  if (value.size() == 0 || (!is_list && value.kind() != JsonKind::kObject)) {
    return body.Text(value.Dump());
  }
  body.Text(is_list ? "[" : "{").Gbnf(kSpace);
  const auto add = [&](JsonView part) { body.Append(ValueBody(part)); };
  if (is_list) {
    for (size_t i = 0; i < value.size(); ++i) {
      if (i > 0) body.Text(",").Gbnf(kSpace);
      add(*value.At(i));
    }
  }
  bool is_first = true;
  for (const auto& [name, member] : value.members()) {
    if (!is_first) body.Text(",").Gbnf(kSpace);
    is_first = false;
    body.Text(JsonText(name) + ":").Gbnf(kSpace);
    add(member);
  }
  return body.Gbnf(kSpace).Text(is_list ? "]" : "}");
}

}  // namespace moestro
