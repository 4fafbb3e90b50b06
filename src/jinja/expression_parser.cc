// SPDX-License-Identifier: MIT
#include "jinja/expression_parser.h"

#include <algorithm>

#include "jinja/characters.h"

namespace moestro::jinja {

// --- The tree.

Expression ExpressionParser::New(Kind kind) const {
  Expression made;
  made.kind = kind;
  made.line = tokens_.current().line;
  return made;
}

ExpressionPtr ExpressionParser::Done(Expression made) const {
  for (const ExpressionPtr& part : made.parts) {
    if (part) made.depth = std::max(made.depth, part->depth + 1);
  }
  for (const ArgumentSyntax& argument : made.arguments) {
    made.depth = std::max(made.depth, argument.value->depth + 1);
  }
  if (made.depth > TokenReader::kMostLevels) tokens_.FailTooDeep();
  return std::make_unique<const Expression>(std::move(made));
}

ExpressionPtr ExpressionParser::Constant(Value value) const {
  Expression made = New(Kind::kConstant);
  made.constant = std::move(value);
  return Done(std::move(made));
}

ExpressionPtr ExpressionParser::Binary(Operator op, ExpressionPtr left, ExpressionPtr right) const {
  Expression made = New(Kind::kBinary);
  made.operators.push_back(op);
  made.parts.push_back(std::move(left));
  made.parts.push_back(std::move(right));
  return Done(std::move(made));
}

ExpressionPtr ExpressionParser::Unary(Operator op, ExpressionPtr part) const {
  Expression made = New(Kind::kUnary);
  made.operators.push_back(op);
  made.parts.push_back(std::move(part));
  return Done(std::move(made));
}

// --- Expressions, weakest operator first.

ExpressionPtr ExpressionParser::ParseExpression(bool with_condition) {
  const TokenReader::Level level(tokens_);
  return with_condition ? ParseCondition() : ParseOr();
}

ExpressionPtr ExpressionParser::ParseCondition() {
  ExpressionPtr value = ParseOr();
  while (tokens_.SkipName("if")) {
    ExpressionPtr condition = ParseOr();
    ExpressionPtr otherwise;
    if (tokens_.SkipName("else")) otherwise = ParseExpression();
    value = Node(Kind::kCondition, std::move(condition), std::move(value), std::move(otherwise));
  }
  return value;
}

ExpressionPtr ExpressionParser::ParseOr() {
  ExpressionPtr left = ParseAnd();
  while (tokens_.SkipName("or")) left = Node(Kind::kOr, std::move(left), ParseAnd());
  return left;
}

ExpressionPtr ExpressionParser::ParseAnd() {
  ExpressionPtr left = ParseNot();
  while (tokens_.SkipName("and")) left = Node(Kind::kAnd, std::move(left), ParseNot());
  return left;
}

ExpressionPtr ExpressionParser::ParseNot() {
  if (!tokens_.SkipName("not")) return ParseCompare();
  const TokenReader::Level level(tokens_);
  return Unary(Operator::kNot, ParseNot());
}

std::optional<Operator> ExpressionParser::TakeComparison() {
  if (tokens_.IsName("not") && tokens_.next().kind == Token::Kind::kName &&
      tokens_.next().text == "in") {
    tokens_.Take();
    tokens_.Take();
    return Operator::kNotIn;
  }
  if (tokens_.SkipName("in")) return Operator::kIn;
  constexpr std::pair<std::string_view, Operator> kComparisons[] = {
      {"==", Operator::kEqual},  {"!=", Operator::kNotEqual},
      {"<", Operator::kLess},    {"<=", Operator::kLessOrEqual},
      {">", Operator::kGreater}, {">=", Operator::kGreaterOrEqual}};
  for (const auto& [text, op] : kComparisons) {
    if (tokens_.SkipOperator(text)) return op;
  }
  return std::nullopt;
}

ExpressionPtr ExpressionParser::ParseCompare() {
  ExpressionPtr first = ParseSum();
  auto op = TakeComparison();
  if (!op) return first;
  Expression made = New(Kind::kCompare);
  made.parts.push_back(std::move(first));
  for (; op; op = TakeComparison()) {
    made.operators.push_back(*op);
    made.parts.push_back(ParseSum());
  }
  return Done(std::move(made));
}

ExpressionPtr ExpressionParser::ParseSum() {
  ExpressionPtr left = ParseConcat();
  while (tokens_.IsOperator("+") || tokens_.IsOperator("-")) {
    const Operator op = tokens_.Take().text == "+" ? Operator::kAdd : Operator::kSubtract;
    left = Binary(op, std::move(left), ParseConcat());
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseConcat() {
  ExpressionPtr first = ParseProduct();
  if (!tokens_.IsOperator("~")) return first;
  Expression made = New(Kind::kConcat);
  made.parts.push_back(std::move(first));
  while (tokens_.SkipOperator("~")) made.parts.push_back(ParseProduct());
  return Done(std::move(made));
}

ExpressionPtr ExpressionParser::ParseProduct() {
  constexpr std::pair<std::string_view, Operator> kProducts[] = {{"*", Operator::kMultiply},
                                                                 {"/", Operator::kDivide},
                                                                 {"//", Operator::kFloorDivide},
                                                                 {"%", Operator::kModulo}};
  ExpressionPtr left = ParsePower();
  while (true) {
    const auto* found = std::ranges::find_if(
        kProducts, [this](const auto& product) { return tokens_.IsOperator(product.first); });
    if (found == std::end(kProducts)) return left;
    tokens_.Take();
    left = Binary(found->second, std::move(left), ParsePower());
  }
}

ExpressionPtr ExpressionParser::ParsePower() {
  ExpressionPtr left = ParseUnary(true);
  while (tokens_.SkipOperator("**"))
    left = Binary(Operator::kPower, std::move(left), ParseUnary(true));
  return left;
}

ExpressionPtr ExpressionParser::ParseUnary(bool with_filters) {
  const TokenReader::Level level(tokens_);
  ExpressionPtr value;
  if (tokens_.SkipOperator("-")) {
    value = Unary(Operator::kMinus, ParseUnary(false));
  } else if (tokens_.SkipOperator("+")) {
    value = Unary(Operator::kPlus, ParseUnary(false));
  } else {
    value = ParsePrimary();
  }
  value = ParsePostfix(std::move(value));
  return with_filters ? ParseFiltersAndTests(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::ParsePrimary() {
  switch (tokens_.current().kind) {
    case Token::Kind::kName:
      return ParseNamed();
    case Token::Kind::kString: {
      std::string text = tokens_.Take().text;
      while (tokens_.current().kind == Token::Kind::kString) text += tokens_.Take().text;
      return Constant(Value(std::move(text)));
    }
    case Token::Kind::kInteger:
      return ParseInteger();
    case Token::Kind::kFloat: {
      const std::string digits = tokens_.Take().text;
      return Constant(Value(RealOfDigits(digits).value_or(0.0)));
    }
    default:
      break;
  }
  if (tokens_.SkipOperator("(")) {
    ExpressionPtr tuple = ParseTuple({.is_in_brackets = true});
    tokens_.ExpectOperator(")");
    return tuple;
  }
  if (tokens_.IsOperator("[")) return ParseList();
  if (tokens_.IsOperator("{")) return ParseDict();
  tokens_.Fail(Format("an expression is expected, not {}", tokens_.Found()));
}

ExpressionPtr ExpressionParser::ParseNamed() {
  const std::string name = tokens_.Take().text;
  if (name == "true" || name == "True") return Constant(Value(true));
  if (name == "false" || name == "False") return Constant(Value(false));
  if (name == "none" || name == "None") return Constant(Value::None());
  for (MacroSyntax* macro : open_macros_) {
    if (name == "varargs") macro->takes_varargs = true;
    if (name == "kwargs") macro->takes_kwargs = true;
    if (name == "caller") macro->takes_caller = true;
  }
  return Named(name);
}

ExpressionPtr ExpressionParser::Named(std::string_view name) const {
  Expression made = New(Kind::kName);
  made.name = name;
  return Done(std::move(made));
}

ExpressionPtr ExpressionParser::ParseInteger() {
  const std::string digits = tokens_.Take().text;
  const auto value = WholeOfText(digits, 0);
  if (!value) tokens_.Fail(Format("'{}' is no whole number", digits));
  return Constant(*value);
}

bool ExpressionParser::IsTupleEnd(const TupleForm& form) const {
  return tokens_.current().kind == Token::Kind::kPrintEnd ||
         tokens_.current().kind == Token::Kind::kBlockEnd || tokens_.IsOperator(")") ||
         (!form.end_name.empty() && tokens_.IsName(form.end_name));
}

// 1, 2 and 1, are tuples, 1 is none.
ExpressionPtr ExpressionParser::ParseTuple(const TupleForm& form) {
  const TokenReader::Level level(tokens_);
  Expression tuple = New(Kind::kTuple);
  bool is_tuple = false;
  while (true) {
    if (!tuple.parts.empty()) tokens_.ExpectOperator(",");
    if (IsTupleEnd(form)) break;
    tuple.parts.push_back(form.is_target ? ParsePlace(form.may_be_member)
                                         : ParseExpression(form.with_condition));
    if (!tokens_.IsOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && tuple.parts.size() == 1) return std::move(tuple.parts.front());
  if (!is_tuple && !form.is_in_brackets) {
    tokens_.Fail(Format("an expression is expected, not {}", tokens_.Found()));
  }
  return Done(std::move(tuple));
}

ExpressionPtr ExpressionParser::ParseList() {
  Expression list = New(Kind::kList);
  tokens_.ExpectOperator("[");
  while (!tokens_.IsOperator("]")) {
    if (!list.parts.empty()) tokens_.ExpectOperator(",");
    if (tokens_.IsOperator("]")) break;
    list.parts.push_back(ParseExpression());
  }
  tokens_.ExpectOperator("]");
  return Done(std::move(list));
}

ExpressionPtr ExpressionParser::ParseDict() {
  Expression dict = New(Kind::kDict);
  tokens_.ExpectOperator("{");
  while (!tokens_.IsOperator("}")) {
    if (!dict.parts.empty()) tokens_.ExpectOperator(",");
    if (tokens_.IsOperator("}")) break;
    dict.parts.push_back(ParseExpression());
    tokens_.ExpectOperator(":");
    dict.parts.push_back(ParseExpression());
  }
  tokens_.ExpectOperator("}");
  return Done(std::move(dict));
}

ExpressionPtr ExpressionParser::ParsePostfix(ExpressionPtr value) {
  while (true) {
    if (tokens_.SkipOperator(".")) {
      value = ParseAttribute(std::move(value));
    } else if (tokens_.IsOperator("[")) {
      value = ParseItem(std::move(value));
    } else if (tokens_.IsOperator("(")) {
      value = ParseCall(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::ParseAttribute(ExpressionPtr value) {
  if (tokens_.current().kind == Token::Kind::kInteger) {
    ExpressionPtr index = ParseInteger();
    return Node(Kind::kItem, std::move(value), std::move(index));
  }
  Expression made = New(Kind::kAttribute);
  made.name = tokens_.TakeName();
  made.parts.push_back(std::move(value));
  return Done(std::move(made));
}

ExpressionPtr ExpressionParser::ParseItem(ExpressionPtr value) {
  tokens_.ExpectOperator("[");
  Expression index = New(Kind::kTuple);
  do {
    index.parts.push_back(ParseSubscript());
  } while (tokens_.SkipOperator(","));
  tokens_.ExpectOperator("]");
  ExpressionPtr key =
      index.parts.size() == 1 ? std::move(index.parts.front()) : Done(std::move(index));
  return Node(Kind::kItem, std::move(value), std::move(key));
}

ExpressionPtr ExpressionParser::ParseSubscript() {
  const auto is_end = [this] {
    return tokens_.IsOperator(":") || tokens_.IsOperator("]") || tokens_.IsOperator(",");
  };
  ExpressionPtr begin = is_end() ? nullptr : ParseExpression();
  if (!tokens_.IsOperator(":")) {
    if (!begin) tokens_.Fail(Format("an expression is expected, not {}", tokens_.Found()));
    return begin;
  }
  tokens_.Take();
  ExpressionPtr end = is_end() ? nullptr : ParseExpression();
  ExpressionPtr step;
  if (tokens_.SkipOperator(":") && !is_end()) step = ParseExpression();
  return Node(Kind::kSlice, std::move(begin), std::move(end), std::move(step));
}

ExpressionPtr ExpressionParser::ParseCall(ExpressionPtr callee) {
  Expression call = New(Kind::kCall);
  call.parts.push_back(std::move(callee));
  call.arguments = ParseArguments();
  return Done(std::move(call));
}

std::vector<ArgumentSyntax> ExpressionParser::ParseArguments() {
  std::vector<ArgumentSyntax> arguments;
  tokens_.ExpectOperator("(");
  while (!tokens_.IsOperator(")")) {
    if (!arguments.empty()) tokens_.ExpectOperator(",");
    if (tokens_.IsOperator(")")) break;
    arguments.push_back(ParseArgument());
  }
  tokens_.ExpectOperator(")");
  return arguments;
}

ArgumentSyntax ExpressionParser::ParseArgument() {
  ArgumentSyntax argument;
  if (tokens_.SkipOperator("**")) {
    argument.form = ArgumentSyntax::Form::kSpreadDict;
  } else if (tokens_.SkipOperator("*")) {
    argument.form = ArgumentSyntax::Form::kSpreadList;
  } else if (tokens_.current().kind == Token::Kind::kName &&
             tokens_.next().kind == Token::Kind::kOperator && tokens_.next().text == "=") {
    argument.form = ArgumentSyntax::Form::kNamed;
    argument.name = tokens_.TakeName();
    tokens_.Take();
  }
  argument.value = ParseExpression();
  return argument;
}

ExpressionPtr ExpressionParser::ParseFiltersAndTests(ExpressionPtr value) {
  while (true) {
    if (tokens_.SkipOperator("|")) {
      value = ParseFilter(std::move(value));
    } else if (tokens_.IsName("is")) {
      value = ParseTest(std::move(value));
    } else if (tokens_.IsOperator("(")) {
      value = ParseCall(std::move(value));
    } else {
      return value;
    }
  }
}

// Behind "|".
ExpressionPtr ExpressionParser::ParseFilter(ExpressionPtr value) {
  Expression filter = New(Kind::kFilter);
  filter.name = tokens_.TakeName();
  filter.parts.push_back(std::move(value));
  if (tokens_.IsOperator("(")) filter.arguments = ParseArguments();
  return Done(std::move(filter));
}

ExpressionPtr ExpressionParser::ParseFilters(ExpressionPtr value) {
  while (tokens_.SkipOperator("|")) value = ParseFilter(std::move(value));
  return value;
}

ExpressionPtr ExpressionParser::ParseTest(ExpressionPtr value) {
  tokens_.ExpectName("is");
  Expression test = New(Kind::kTest);
  test.is_negated = tokens_.SkipName("not");
  test.name = tokens_.TakeName();
  test.parts.push_back(std::move(value));
  if (tokens_.IsOperator("(")) {
    test.arguments = ParseArguments();
  } else if (BeginsTestArgument()) {
    ArgumentSyntax argument;
    argument.value = ParsePostfix(ParsePrimary());
    test.arguments.push_back(std::move(argument));
  }
  return Done(std::move(test));
}

bool ExpressionParser::BeginsTestArgument() const {
  switch (tokens_.current().kind) {
    case Token::Kind::kString:
    case Token::Kind::kInteger:
    case Token::Kind::kFloat:
      return true;
    case Token::Kind::kName:
      if (tokens_.IsName("is")) tokens_.Fail("tests cannot be chained with 'is'");
      return !tokens_.IsName("else") && !tokens_.IsName("or") && !tokens_.IsName("and") &&
             !tokens_.IsName("if") && !tokens_.IsName("recursive") && !tokens_.IsName("in") &&
             !tokens_.IsName("not");
    default:
      return tokens_.IsOperator("[") || tokens_.IsOperator("{");
  }
}

// Parses the target of an assignment: a name, a.b, or a tuple of targets.
ExpressionPtr ExpressionParser::ParseTarget(std::string_view end_name, bool may_be_member) {
  ExpressionPtr target =
      ParseTuple({.is_target = true, .may_be_member = may_be_member, .end_name = end_name});
  CheckTarget(*target);
  return target;
}

ExpressionPtr ExpressionParser::ParsePlace(bool may_be_member) {
  const bool is_member = may_be_member && tokens_.current().kind == Token::Kind::kName &&
                         tokens_.next().kind == Token::Kind::kOperator &&
                         tokens_.next().text == ".";
  if (!is_member) return ParsePrimary();
  Expression member = New(Kind::kMember);
  member.parts.push_back(Named(tokens_.Take().text));
  tokens_.Take();
  member.name = tokens_.TakeName();
  return Done(std::move(member));
}

void ExpressionParser::CheckTarget(const Expression& target) const {
  if (target.kind == Kind::kName || target.kind == Kind::kMember) return;
  if (target.kind != Kind::kTuple && target.kind != Kind::kList) {
    tokens_.Fail("only names can be set");
  }
  for (const ExpressionPtr& part : target.parts) CheckTarget(*part);
}

std::vector<Parameter> ExpressionParser::ParseParameters() {
  std::vector<Parameter> parameters;
  tokens_.ExpectOperator("(");
  while (!tokens_.IsOperator(")")) {
    if (!parameters.empty()) tokens_.ExpectOperator(",");
    if (tokens_.IsOperator(")")) break;
    Parameter& parameter = parameters.emplace_back();
    parameter.name = tokens_.TakeName();
    if (tokens_.SkipOperator("=")) {
      parameter.otherwise = ParseExpression();
    } else if (parameters.size() > 1 && parameters[parameters.size() - 2].otherwise) {
      tokens_.Fail(
          Format("parameter '{}' needs a default, since one before it has one", parameter.name));
    }
  }
  tokens_.ExpectOperator(")");
  return parameters;
}

}  // namespace moestro::jinja
