// SPDX-License-Identifier: MIT
// Members of an object in any order, as rules. Each order of some keys needs a state for each set
// of keys that are left, so few keys are counted exactly. If an object has more, optional ones may
// come again, or keep their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "schema/rule_set.h"

namespace moestro {

struct MemberList {
  struct Member {
    RuleId rule;
    bool is_required = false;
  };
  std::vector<Member> members;
  std::optional<RuleId> others;  // other members: any number, anywhere
  RuleBody separator;            // stands between two; may be empty
};

// The rule for optional members that are too many to be counted.
enum class ManyMembers : uint8_t {
  kRepeat,  // any order, and each may come again
  kInOrder,
};

struct MemberRules {
  RuleId rule;              // of one member or more
  bool may_repeat = false;  // optional ones may come again
};

class MemberOrder {
 public:
  // Up to this number of members, every order is allowed and none comes twice. If an object has
  // more, that holds for required members alone, and required ones beyond this number keep their
  // order.
  static constexpr size_t kMostCounted = 7;

  // `steps`: the steps left for orders of members in a grammar (a step: one state and one member
  // that may follow in it).
  MemberOrder(RuleSet& rules, size_t& steps) : rules_(rules), steps_(steps) {}

  // REQUIRES: `list` has members or others.
  MemberRules Write(const MemberList& list, ManyMembers many);

 private:
  struct Rules {
    RuleId alone;   // without a separator
    RuleId behind;  // with a separator before it
  };
  Rules RulesOf(RuleId member, const RuleBody& separator);
  bool Counts(size_t n_members);
  RuleId WriteCounted(const std::vector<MemberList::Member>& counted,
                      const std::optional<RuleId>& free, const RuleBody& separator);
  RuleId WriteInOrder(const std::vector<MemberList::Member>& members,
                      const std::optional<RuleId>& free, const RuleBody& separator);

  RuleSet& rules_;
  size_t& steps_;
};

}  // namespace moestro
