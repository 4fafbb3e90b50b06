// SPDX-License-Identifier: MIT
#include "schema/member_order.h"

#include <algorithm>

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

}  // namespace moestro
