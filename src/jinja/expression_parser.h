// SPDX-License-Identifier: MIT
// Reads expressions by Jinja's grammar, and the parts of tags beside expressions: targets of
// assignments, filters, a macro's parameters. syntax.cc reads tags with it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/lexer.h"
#include "jinja/syntax.h"

namespace moestro::jinja {

// Each method parses from the reader's current token on and stops at the first token that does not
// belong to its result. Throws Failure.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenReader& tokens) : tokens_(tokens) {}

  struct TupleForm {
    bool is_in_brackets = false;
    bool with_condition = true;
    bool is_target = false;          // names alone
    bool may_be_member = false;      // or, of a target, a.b
    std::string_view end_name = {};  // ends the tuple behind a comma
  };

  ExpressionPtr ParseExpression(bool with_condition = true);
  // 1, 2 and 1, are tuples, 1 is none.
  ExpressionPtr ParseTuple(const TupleForm& form);
  ExpressionPtr ParsePrimary();
  // Parses the target of an assignment: a name, a.b if it may be a member, or a tuple of targets.
  ExpressionPtr ParseTarget(std::string_view end_name, bool may_be_member);
  void CheckTarget(const Expression& target) const;
  // Behind "|".
  ExpressionPtr ParseFilter(ExpressionPtr value);
  ExpressionPtr ParseFilters(ExpressionPtr value);
  std::vector<Parameter> ParseParameters();
  // The text of the block that filters are applied to.
  ExpressionPtr Captured() const { return Node(Kind::kCaptured); }

  // From now on names also belong to the macro's body, until CloseMacro().
  void OpenMacro(MacroSyntax& macro) { open_macros_.push_back(&macro); }
  void CloseMacro() { open_macros_.pop_back(); }

 private:
  using Kind = Expression::Kind;

  template <class... Parts>
  ExpressionPtr Node(Kind kind, Parts... parts) const {
    Expression made = New(kind);
    (made.parts.push_back(std::move(parts)), ...);
    return Done(std::move(made));
  }
  Expression New(Kind kind) const;
  ExpressionPtr Done(Expression made) const;
  ExpressionPtr Constant(Value value) const;
  ExpressionPtr Binary(Operator op, ExpressionPtr left, ExpressionPtr right) const;
  ExpressionPtr Unary(Operator op, ExpressionPtr part) const;
  ExpressionPtr ParseCondition();
  ExpressionPtr ParseOr();
  ExpressionPtr ParseAnd();
  ExpressionPtr ParseNot();
  std::optional<Operator> TakeComparison();
  ExpressionPtr ParseCompare();
  ExpressionPtr ParseSum();
  ExpressionPtr ParseConcat();
  ExpressionPtr ParseProduct();
  ExpressionPtr ParsePower();
  ExpressionPtr ParseUnary(bool with_filters);
  ExpressionPtr ParseNamed();
  ExpressionPtr Named(std::string_view name) const;
  ExpressionPtr ParseInteger();
  bool IsTupleEnd(const TupleForm& form) const;
  ExpressionPtr ParseList();
  ExpressionPtr ParseDict();
  ExpressionPtr ParsePostfix(ExpressionPtr value);
  ExpressionPtr ParseAttribute(ExpressionPtr value);
  ExpressionPtr ParseItem(ExpressionPtr value);
  ExpressionPtr ParseSubscript();
  ExpressionPtr ParseCall(ExpressionPtr callee);
  std::vector<ArgumentSyntax> ParseArguments();
  ArgumentSyntax ParseArgument();
  ExpressionPtr ParseFiltersAndTests(ExpressionPtr value);
  ExpressionPtr ParseTest(ExpressionPtr value);
  bool BeginsTestArgument() const;
  ExpressionPtr ParsePlace(bool may_be_member);

  TokenReader& tokens_;
  std::vector<MacroSyntax*> open_macros_;
};

}  // namespace moestro::jinja
