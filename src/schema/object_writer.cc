// SPDX-License-Identifier: MIT
// Objects: members in any order, optional ones left out or not, with others between.
#include "schema/object_writer.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "schema/rule_set.h"
#include "schema/schema_writer.h"

namespace moestro {

MemberOrder::Rules MemberOrder::RulesOf(RuleId member, const RuleBody& separator) {
  return {.alone = member, .behind = rules_.Add(RuleBody(separator).Rule(member))};
}

// Whether so many members can be counted; takes the steps.
bool MemberOrder::Counts(size_t n_members) {
  if (n_members > kMostCounted) return false;
  const size_t needed = n_members << n_members;
  if (needed > steps_) return false;
  steps_ -= needed;
  return true;
}

MemberRules MemberOrder::Write(const MemberList& list, ManyMembers many) {
  const auto& members = list.members;
  if (Counts(members.size())) {
    return {.rule = WriteCounted(members, list.others, list.separator)};
  }
  if (many == ManyMembers::kInOrder) {
    return {.rule = WriteInOrder(members, list.others, list.separator)};
  }
  std::vector<MemberList::Member> required;
  const RuleId free = rules_.Add();
  if (list.others) rules_.AddAlternative(free, RuleBody().Rule(*list.others));
  for (const MemberList::Member& member : members) {
    if (member.is_required) {
      required.push_back(member);
    } else {
      rules_.AddAlternative(free, RuleBody().Rule(member.rule));
    }
  }
  const bool may_repeat = required.size() < members.size();
  const RuleId rule = Counts(required.size()) ? WriteCounted(required, free, list.separator)
                                              : WriteInOrder(required, free, list.separator);
  return {.rule = rule, .may_repeat = may_repeat};
}

// A rule for each set of members that are left, behind another member. Bits are members.
RuleId MemberOrder::WriteCounted(const std::vector<MemberList::Member>& counted,
                                 const std::optional<RuleId>& free, const RuleBody& separator) {
  const size_t n_sets = size_t{1} << counted.size();
  size_t required = 0;
  std::vector<Rules> rules;
  for (size_t i = 0; i < counted.size(); ++i) {
    rules.push_back(RulesOf(counted[i].rule, separator));
    if (counted[i].is_required) required |= size_t{1} << i;
  }
  const std::optional<Rules> free_rules =
      free ? std::optional(RulesOf(*free, separator)) : std::nullopt;
  std::vector<RuleId> rest;
  for (size_t left = 0; left < n_sets; ++left) {
    const RuleId rule = rest.emplace_back(rules_.Add());
    for (size_t i = 0; i < counted.size(); ++i) {
      const size_t bit = size_t{1} << i;
      if ((left & bit) == 0) continue;
      rules_.AddAlternative(rule, RuleBody().Rule(rules[i].behind).Rule(rest[left ^ bit]));
    }
    if (free_rules) rules_.AddAlternative(rule, RuleBody().Rule(free_rules->behind).Rule(rule));
    if ((left & required) == 0) rules_.AddAlternative(rule, RuleBody().Gbnf("\"\""));
  }
  const RuleId first = rules_.Add();
  const size_t all = n_sets - 1;
  for (size_t i = 0; i < counted.size(); ++i) {
    const RuleId next = rest[all ^ (size_t{1} << i)];
    rules_.AddAlternative(first, RuleBody().Rule(rules[i].alone).Rule(next));
  }
  if (free_rules) rules_.AddAlternative(first, RuleBody().Rule(free_rules->alone).Rule(rest[all]));
  return first;
}

// Two rules for each member: `first` for the members from this one on if none has come before,
// `rest` if one has. Free members may come anywhere.
RuleId MemberOrder::WriteInOrder(const std::vector<MemberList::Member>& members,
                                 const std::optional<RuleId>& free, const RuleBody& separator) {
  const std::optional<Rules> free_rules =
      free ? std::optional(RulesOf(*free, separator)) : std::nullopt;
  const auto add_free = [&](RuleId first, RuleId rest) {
    if (!free_rules) return;
    rules_.AddAlternative(first, RuleBody().Rule(free_rules->alone).Rule(rest));
    rules_.AddAlternative(rest, RuleBody().Rule(free_rules->behind).Rule(rest));
  };
  RuleId first = rules_.Add();
  RuleId rest = rules_.Add(RuleBody().Gbnf("\"\""));
  add_free(first, rest);
  for (size_t i = members.size(); i-- > 0;) {
    const Rules member = RulesOf(members[i].rule, separator);
    const RuleId next_first = first;
    const RuleId next_rest = rest;
    first = rules_.Add(RuleBody().Rule(member.alone).Rule(next_rest));
    rest = rules_.Add(RuleBody().Rule(member.behind).Rule(next_rest));
    if (members[i].is_required) {
      add_free(first, rest);
      continue;
    }
    rules_.AddAlternative(first, RuleBody().Rule(next_first));
    rules_.AddAlternative(rest, RuleBody().Rule(next_rest));
  }
  return first;
}

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
