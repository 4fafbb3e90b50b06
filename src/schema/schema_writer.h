// SPDX-License-Identifier: MIT
// Makes rules of SchemaReader's constraints: one for each set of sub-schemas that a value must
// satisfy together, so that recursive schemas become recursive rules.
//
// Thread rule: any one thread at a time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "schema/pattern.h"
#include "schema/rule_set.h"
#include "schema/schema_reader.h"

namespace moestro {

class SchemaWriter {
 public:
  // `order_steps`: the steps left for orders of members (object_writer.h).
  SchemaWriter(SchemaReader& reader, RuleSet& rules, size_t& order_steps)
      : reader_(reader), rules_(rules), order_steps_(order_steps) {}

  // Adds all rules for the schema at a place, for values of these kinds; returns the first one's
  // id.
  Result<RuleId> Write(NodeId place, KindSet kinds);

 private:
  RuleId RuleFor(const NodeSet& places);
  Status WriteCase(const Constraint& constraint, RuleId rule);
  Status WriteKind(JsonKind kind, const Constraint& constraint, RuleId rule);
  Status WriteNumber(const Constraint& constraint, RuleId rule);
  Status WriteString(const Constraint& constraint, RuleId rule);
  Result<bool> WritePatterns(const Constraint& constraint, RuleId rule);
  Result<std::optional<Pattern>> Limited(const std::string& text, const Times& length);
  Result<Times> Countable(Times times, std::string_view keyword);
  Status WriteArray(const Constraint& constraint, RuleId rule);
  Status WriteObject(const Constraint& constraint, RuleId rule);
  RuleId Members(const Constraint& constraint, bool with_optional, bool with_others);
  RuleId OtherMember(const Constraint& constraint);
  RuleId OtherName(const Constraint& constraint);
  Result<bool> IsImpossible(const NodeSet& places);
  Status CheckSize() const;
  Status CheckNames(const Constraint& constraint);
  RuleBody ValueBody(JsonView value) const;
  // A rule takes at least a name of ten bytes and one mention of the name in the grammar, which has
  // 256 KiB; some rules are left out of the grammar.
  static constexpr size_t kMostRules = 16'384;

  std::unexpected<Error> Unsupported(const std::string& what) const;
  // True: the restriction may be left out, and has been noted.
  bool LeavesOut(const std::string& what);

  SchemaReader& reader_;
  RuleSet& rules_;
  size_t& order_steps_;
  std::map<NodeSet, RuleId> known_;
  std::vector<NodeSet> to_write_;
  NodeSet current_;  // for messages
};

}  // namespace moestro
