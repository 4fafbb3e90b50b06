// SPDX-License-Identifier: MIT
#include "jinja/parser.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <utility>

#include "jinja/failure.h"
#include "jinja/lexer.h"

namespace moestro::jinja {
namespace {

// Of brackets, blocks and operators within each other: the interpreter takes stack for each.
constexpr uint32_t kMostLevels = 200;

class Parser {
 public:
  explicit Parser(std::string_view text) : tokens_(CutIntoTokens(text)) {}

  Body Run() {
    Body body = ParseBody({});
    return body;
  }

 private:
  using Kind = Expression::Kind;

  // Counts levels as long as it lives.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      if (++parser_.level_ > kMostLevels) parser_.Fail(TooDeep());
    }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --parser_.level_; }

   private:
    Parser& parser_;
  };
  static std::string TooDeep() { return Format("more than {} levels within each other", kMostLevels); }

  [[noreturn]] void Fail(std::string words) const {
    throw Failure(Failure::Kind::kSyntax, std::move(words), current().line);
  }

  // --- Tokens.

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token Take() {
    Token token = current();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool Is(Token::Kind kind, std::string_view text) const {
    return current().kind == kind && current().text == text;
  }
  bool IsOperator(std::string_view text) const { return Is(Token::Kind::kOperator, text); }
  bool IsName(std::string_view text) const { return Is(Token::Kind::kName, text); }
  bool SkipOperator(std::string_view text) {
    if (!IsOperator(text)) return false;
    Take();
    return true;
  }
  bool SkipName(std::string_view text) {
    if (!IsName(text)) return false;
    Take();
    return true;
  }
  std::string Found() const {
    switch (current().kind) {
      case Token::Kind::kEnd:
        return "the end of the template";
      case Token::Kind::kPrintEnd:
        return "the end of a print tag";
      case Token::Kind::kBlockEnd:
        return "the end of a block tag";
      case Token::Kind::kText:
      case Token::Kind::kPrintBegin:
      case Token::Kind::kBlockBegin:
        return "text";
      default:
        return Format("'{}'", current().text);
    }
  }
  void ExpectOperator(std::string_view text) {
    if (!SkipOperator(text)) Fail(Format("'{}' is expected, not {}", text, Found()));
  }
  void ExpectName(std::string_view text) {
    if (!SkipName(text)) Fail(Format("'{}' is expected, not {}", text, Found()));
  }
  std::string TakeName() {
    if (current().kind != Token::Kind::kName) Fail(Format("a name is expected, not {}", Found()));
    return Take().text;
  }
  void Expect(Token::Kind kind, std::string_view what) {
    if (current().kind != kind) Fail(Format("{} is expected, not {}", what, Found()));
    Take();
  }
  void ExpectBlockEnd() { Expect(Token::Kind::kBlockEnd, "the end of the block tag"); }

  // --- The tree.

  Expression New(Kind kind) const {
    Expression made;
    made.kind = kind;
    made.line = current().line;
    return made;
  }
  ExpressionPtr Done(Expression made) const {
    for (const ExpressionPtr& part : made.parts) {
      if (part) made.depth = std::max(made.depth, part->depth + 1);
    }
    for (const ArgumentSyntax& argument : made.arguments) {
      made.depth = std::max(made.depth, argument.value->depth + 1);
    }
    if (made.depth > kMostLevels) Fail(TooDeep());
    return std::make_unique<const Expression>(std::move(made));
  }
  ExpressionPtr Constant(Value value) const {
    Expression made = New(Kind::kConstant);
    made.constant = std::move(value);
    return Done(std::move(made));
  }
  template <class... Parts>
  ExpressionPtr Node(Kind kind, Parts... parts) const {
    Expression made = New(kind);
    (made.parts.push_back(std::move(parts)), ...);
    return Done(std::move(made));
  }
  ExpressionPtr Binary(Operator op, ExpressionPtr left, ExpressionPtr right) const {
    Expression made = New(Kind::kBinary);
    made.operators.push_back(op);
    made.parts.push_back(std::move(left));
    made.parts.push_back(std::move(right));
    return Done(std::move(made));
  }
  ExpressionPtr Unary(Operator op, ExpressionPtr part) const {
    Expression made = New(Kind::kUnary);
    made.operators.push_back(op);
    made.parts.push_back(std::move(part));
    return Done(std::move(made));
  }

  // --- Expressions, weakest operator first.

  ExpressionPtr ParseExpression(bool with_condition = true) {
    const Level level(*this);
    return with_condition ? ParseCondition() : ParseOr();
  }
  ExpressionPtr ParseCondition() {
    ExpressionPtr value = ParseOr();
    while (SkipName("if")) {
      ExpressionPtr condition = ParseOr();
      ExpressionPtr otherwise;
      if (SkipName("else")) otherwise = ParseExpression();
      value = Node(Kind::kCondition, std::move(condition), std::move(value), std::move(otherwise));
    }
    return value;
  }
  ExpressionPtr ParseOr() {
    ExpressionPtr left = ParseAnd();
    while (SkipName("or")) left = Node(Kind::kOr, std::move(left), ParseAnd());
    return left;
  }
  ExpressionPtr ParseAnd() {
    ExpressionPtr left = ParseNot();
    while (SkipName("and")) left = Node(Kind::kAnd, std::move(left), ParseNot());
    return left;
  }
  ExpressionPtr ParseNot() {
    if (!SkipName("not")) return ParseCompare();
    const Level level(*this);
    return Unary(Operator::kNot, ParseNot());
  }
  std::optional<Operator> TakeComparison() {
    if (IsName("not") && next().kind == Token::Kind::kName && next().text == "in") {
      Take();
      Take();
      return Operator::kNotIn;
    }
    if (SkipName("in")) return Operator::kIn;
    constexpr std::pair<std::string_view, Operator> kComparisons[] = {
        {"==", Operator::kEqual}, {"!=", Operator::kNotEqual},
        {"<", Operator::kLess},   {"<=", Operator::kLessOrEqual},
        {">", Operator::kGreater}, {">=", Operator::kGreaterOrEqual}};
    for (const auto& [text, op] : kComparisons) {
      if (SkipOperator(text)) return op;
    }
    return std::nullopt;
  }
  ExpressionPtr ParseCompare() {
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
  ExpressionPtr ParseSum() {
    ExpressionPtr left = ParseConcat();
    while (IsOperator("+") || IsOperator("-")) {
      const Operator op = Take().text == "+" ? Operator::kAdd : Operator::kSubtract;
      left = Binary(op, std::move(left), ParseConcat());
    }
    return left;
  }
  ExpressionPtr ParseConcat() {
    ExpressionPtr first = ParseProduct();
    if (!IsOperator("~")) return first;
    Expression made = New(Kind::kConcat);
    made.parts.push_back(std::move(first));
    while (SkipOperator("~")) made.parts.push_back(ParseProduct());
    return Done(std::move(made));
  }
  ExpressionPtr ParseProduct() {
    constexpr std::pair<std::string_view, Operator> kProducts[] = {
        {"*", Operator::kMultiply},
        {"/", Operator::kDivide},
        {"//", Operator::kFloorDivide},
        {"%", Operator::kModulo}};
    ExpressionPtr left = ParsePower();
    while (true) {
      const auto* found = std::ranges::find_if(
          kProducts, [this](const auto& product) { return IsOperator(product.first); });
      if (found == std::end(kProducts)) return left;
      Take();
      left = Binary(found->second, std::move(left), ParsePower());
    }
  }
  ExpressionPtr ParsePower() {
    ExpressionPtr left = ParseUnary(true);
    while (SkipOperator("**")) left = Binary(Operator::kPower, std::move(left), ParseUnary(true));
    return left;
  }
  ExpressionPtr ParseUnary(bool with_filters) {
    const Level level(*this);
    ExpressionPtr value;
    if (SkipOperator("-")) {
      value = Unary(Operator::kMinus, ParseUnary(false));
    } else if (SkipOperator("+")) {
      value = Unary(Operator::kPlus, ParseUnary(false));
    } else {
      value = ParsePrimary();
    }
    value = ParsePostfix(std::move(value));
    return with_filters ? ParseFiltersAndTests(std::move(value)) : std::move(value);
  }

  ExpressionPtr ParsePrimary() {
    switch (current().kind) {
      case Token::Kind::kName:
        return ParseNamed();
      case Token::Kind::kString: {
        std::string text = Take().text;
        while (current().kind == Token::Kind::kString) text += Take().text;
        return Constant(Value(std::move(text)));
      }
      case Token::Kind::kInteger:
        return ParseInteger();
      case Token::Kind::kFloat: {
        const std::string digits = Take().text;
        double value = 0.0;
        std::from_chars(digits.data(), digits.data() + digits.size(), value);
        return Constant(Value(value));
      }
      default:
        break;
    }
    if (SkipOperator("(")) {
      ExpressionPtr tuple = ParseTuple({.is_in_brackets = true});
      ExpectOperator(")");
      return tuple;
    }
    if (IsOperator("[")) return ParseList();
    if (IsOperator("{")) return ParseDict();
    Fail(Format("an expression is expected, not {}", Found()));
  }
  ExpressionPtr ParseNamed() {
    const std::string name = Take().text;
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
  ExpressionPtr Named(std::string_view name) const {
    Expression made = New(Kind::kName);
    made.name = name;
    return Done(std::move(made));
  }
  ExpressionPtr ParseInteger() {
    const std::string digits = Take().text;
    int64_t value = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return Constant(read.ec == std::errc() ? Value(value) : Value::BigInt(digits));
  }

  struct TupleForm {
    bool is_in_brackets = false;
    bool with_condition = true;
    bool is_target = false;          // names alone
    std::string_view end_name = {};  // ends the tuple behind a comma
  };
  bool IsTupleEnd(const TupleForm& form) const {
    return current().kind == Token::Kind::kPrintEnd || current().kind == Token::Kind::kBlockEnd ||
           IsOperator(")") || (!form.end_name.empty() && IsName(form.end_name));
  }
  // 1, 2 and 1, are tuples, 1 is none.
  ExpressionPtr ParseTuple(const TupleForm& form) {
    const Level level(*this);
    Expression tuple = New(Kind::kTuple);
    bool is_tuple = false;
    while (true) {
      if (!tuple.parts.empty()) ExpectOperator(",");
      if (IsTupleEnd(form)) break;
      tuple.parts.push_back(form.is_target ? ParsePrimary() : ParseExpression(form.with_condition));
      if (!IsOperator(",")) break;
      is_tuple = true;
    }
    if (!is_tuple && tuple.parts.size() == 1) return std::move(tuple.parts.front());
    if (!is_tuple && !form.is_in_brackets) {
      Fail(Format("an expression is expected, not {}", Found()));
    }
    return Done(std::move(tuple));
  }
  ExpressionPtr ParseList() {
    Expression list = New(Kind::kList);
    ExpectOperator("[");
    while (!IsOperator("]")) {
      if (!list.parts.empty()) ExpectOperator(",");
      if (IsOperator("]")) break;
      list.parts.push_back(ParseExpression());
    }
    ExpectOperator("]");
    return Done(std::move(list));
  }
  ExpressionPtr ParseDict() {
    Expression dict = New(Kind::kDict);
    ExpectOperator("{");
    while (!IsOperator("}")) {
      if (!dict.parts.empty()) ExpectOperator(",");
      if (IsOperator("}")) break;
      dict.parts.push_back(ParseExpression());
      ExpectOperator(":");
      dict.parts.push_back(ParseExpression());
    }
    ExpectOperator("}");
    return Done(std::move(dict));
  }

  ExpressionPtr ParsePostfix(ExpressionPtr value) {
    while (true) {
      if (SkipOperator(".")) {
        value = ParseAttribute(std::move(value));
      } else if (IsOperator("[")) {
        value = ParseItem(std::move(value));
      } else if (IsOperator("(")) {
        value = ParseCall(std::move(value));
      } else {
        return value;
      }
    }
  }
  ExpressionPtr ParseAttribute(ExpressionPtr value) {
    if (current().kind == Token::Kind::kInteger) {
      ExpressionPtr index = ParseInteger();
      return Node(Kind::kItem, std::move(value), std::move(index));
    }
    Expression made = New(Kind::kAttribute);
    made.name = TakeName();
    made.parts.push_back(std::move(value));
    return Done(std::move(made));
  }
  ExpressionPtr ParseItem(ExpressionPtr value) {
    ExpectOperator("[");
    Expression index = New(Kind::kTuple);
    do {
      index.parts.push_back(ParseSubscript());
    } while (SkipOperator(","));
    ExpectOperator("]");
    ExpressionPtr key =
        index.parts.size() == 1 ? std::move(index.parts.front()) : Done(std::move(index));
    return Node(Kind::kItem, std::move(value), std::move(key));
  }
  ExpressionPtr ParseSubscript() {
    const auto is_end = [this] { return IsOperator(":") || IsOperator("]") || IsOperator(","); };
    ExpressionPtr begin = is_end() ? nullptr : ParseExpression();
    if (!IsOperator(":")) {
      if (!begin) Fail(Format("an expression is expected, not {}", Found()));
      return begin;
    }
    Take();
    ExpressionPtr end = is_end() ? nullptr : ParseExpression();
    ExpressionPtr step;
    if (SkipOperator(":") && !is_end()) step = ParseExpression();
    return Node(Kind::kSlice, std::move(begin), std::move(end), std::move(step));
  }
  ExpressionPtr ParseCall(ExpressionPtr callee) {
    Expression call = New(Kind::kCall);
    call.parts.push_back(std::move(callee));
    call.arguments = ParseArguments();
    return Done(std::move(call));
  }
  std::vector<ArgumentSyntax> ParseArguments() {
    std::vector<ArgumentSyntax> arguments;
    ExpectOperator("(");
    while (!IsOperator(")")) {
      if (!arguments.empty()) ExpectOperator(",");
      if (IsOperator(")")) break;
      arguments.push_back(ParseArgument());
    }
    ExpectOperator(")");
    return arguments;
  }
  ArgumentSyntax ParseArgument() {
    ArgumentSyntax argument;
    if (SkipOperator("**")) {
      argument.form = ArgumentSyntax::Form::kSpreadDict;
    } else if (SkipOperator("*")) {
      argument.form = ArgumentSyntax::Form::kSpreadList;
    } else if (current().kind == Token::Kind::kName && next().kind == Token::Kind::kOperator &&
               next().text == "=") {
      argument.form = ArgumentSyntax::Form::kNamed;
      argument.name = TakeName();
      Take();
    }
    argument.value = ParseExpression();
    return argument;
  }

  ExpressionPtr ParseFiltersAndTests(ExpressionPtr value) {
    while (true) {
      if (SkipOperator("|")) {
        value = ParseFilter(std::move(value));
      } else if (IsName("is")) {
        value = ParseTest(std::move(value));
      } else if (IsOperator("(")) {
        value = ParseCall(std::move(value));
      } else {
        return value;
      }
    }
  }
  // Behind "|".
  ExpressionPtr ParseFilter(ExpressionPtr value) {
    Expression filter = New(Kind::kFilter);
    filter.name = TakeName();
    filter.parts.push_back(std::move(value));
    if (IsOperator("(")) filter.arguments = ParseArguments();
    return Done(std::move(filter));
  }
  ExpressionPtr ParseFilters(ExpressionPtr value) {
    while (SkipOperator("|")) value = ParseFilter(std::move(value));
    return value;
  }
  ExpressionPtr ParseTest(ExpressionPtr value) {
    ExpectName("is");
    Expression test = New(Kind::kTest);
    test.is_negated = SkipName("not");
    test.name = TakeName();
    test.parts.push_back(std::move(value));
    if (IsOperator("(")) {
      test.arguments = ParseArguments();
    } else if (BeginsTestArgument()) {
      ArgumentSyntax argument;
      argument.value = ParsePostfix(ParsePrimary());
      test.arguments.push_back(std::move(argument));
    }
    return Done(std::move(test));
  }
  bool BeginsTestArgument() const {
    switch (current().kind) {
      case Token::Kind::kString:
      case Token::Kind::kInteger:
      case Token::Kind::kFloat:
        return true;
      case Token::Kind::kName:
        if (IsName("is")) Fail("tests cannot be chained with 'is'");
        return !IsName("else") && !IsName("or") && !IsName("and") && !IsName("if") &&
               !IsName("recursive") && !IsName("in") && !IsName("not");
      default:
        return IsOperator("[") || IsOperator("{");
    }
  }

  // --- Statements.

  // Up to a tag of one of these names, which is left to the caller.
  Body ParseBody(std::initializer_list<std::string_view> ends) {
    const Level level(*this);
    Body body;
    while (true) {
      switch (current().kind) {
        case Token::Kind::kEnd:
          if (ends.size() > 0) Fail(Format("the template ends before '{}'", *(ends.end() - 1)));
          return body;
        case Token::Kind::kText: {
          Statement text;
          text.text = Take().text;
          body.push_back(std::move(text));
          break;
        }
        case Token::Kind::kPrintBegin: {
          Statement print = NewStatement(Statement::Kind::kPrint);
          Take();
          print.value = ParseTuple({});
          Expect(Token::Kind::kPrintEnd, "the end of the print tag");
          body.push_back(std::move(print));
          break;
        }
        default:
          Expect(Token::Kind::kBlockBegin, "a tag");
          if (current().kind == Token::Kind::kName && std::ranges::contains(ends, current().text))
            return body;
          body.push_back(ParseStatement());
      }
    }
  }
  // Behind a body: the name that ends it, to the end of the tag.
  void ExpectEndTag(std::string_view name) {
    ExpectName(name);
    ExpectBlockEnd();
  }
  Statement NewStatement(Statement::Kind kind) const {
    Statement made;
    made.kind = kind;
    made.line = current().line;
    return made;
  }

  Statement ParseStatement() {
    const std::string name = current().kind == Token::Kind::kName ? current().text : "";
    if (name == "for") return ParseFor();
    if (name == "if") return ParseIf();
    if (name == "set") return ParseSet();
    if (name == "macro") return ParseMacro();
    if (name == "call") return ParseCallBlock();
    if (name == "filter") return ParseFilterBlock();
    if (name == "with") return ParseWith();
    if (name == "break" || name == "continue") return ParseLoopControl();
    if (name == "generation") return ParseScope("endgeneration");
    if (name == "autoescape") return ParseScope("endautoescape");
    if (name == "block") return ParseScope("endblock");
    Fail(Format("{} is no tag that is known", name.empty() ? Found() : Format("'{}'", name)));
  }

  Statement ParseFor() {
    Statement loop = NewStatement(Statement::Kind::kFor);
    ExpectName("for");
    loop.target = ParseTarget("in", /*may_be_attribute=*/false);
    ExpectName("in");
    loop.value = ParseTuple({.with_condition = false, .end_name = "recursive"});
    if (SkipName("if")) loop.condition = ParseExpression();
    loop.is_recursive = SkipName("recursive");
    ExpectBlockEnd();
    ++loops_;
    loop.body = ParseBody({"endfor", "else"});
    --loops_;
    if (SkipName("else")) {
      ExpectBlockEnd();
      loop.other = ParseBody({"endfor"});
    }
    ExpectEndTag("endfor");
    return loop;
  }

  Statement ParseIf() {
    Statement chosen = NewStatement(Statement::Kind::kIf);
    ExpectName("if");
    do {
      Branch& branch = chosen.branches.emplace_back();
      branch.condition = ParseTuple({.with_condition = false});
      ExpectBlockEnd();
      branch.body = ParseBody({"elif", "else", "endif"});
    } while (SkipName("elif"));
    if (SkipName("else")) {
      ExpectBlockEnd();
      chosen.branches.emplace_back().body = ParseBody({"endif"});
    }
    ExpectEndTag("endif");
    return chosen;
  }

  // A place that something is set to: a name, a.b, or a tuple of such.
  ExpressionPtr ParseTarget(std::string_view end_name, bool may_be_attribute) {
    if (may_be_attribute && current().kind == Token::Kind::kName &&
        next().kind == Token::Kind::kOperator && next().text == ".") {
      ExpressionPtr name = Named(Take().text);
      Take();
      return ParseAttributeTarget(std::move(name));
    }
    ExpressionPtr target = ParseTuple({.is_target = true, .end_name = end_name});
    CheckTarget(*target);
    return target;
  }
  ExpressionPtr ParseAttributeTarget(ExpressionPtr name) {
    Expression made = New(Kind::kAttribute);
    made.name = TakeName();
    made.parts.push_back(std::move(name));
    return Done(std::move(made));
  }
  void CheckTarget(const Expression& target) const {
    if (target.kind == Kind::kName) return;
    if (target.kind != Kind::kTuple && target.kind != Kind::kList) {
      Fail("only names can be set");
    }
    for (const ExpressionPtr& part : target.parts) CheckTarget(*part);
  }

  Statement ParseSet() {
    Statement set = NewStatement(Statement::Kind::kSet);
    ExpectName("set");
    set.target = ParseTarget({}, /*may_be_attribute=*/true);
    if (SkipOperator("=")) {
      set.value = ParseTuple({});
      ExpectBlockEnd();
      return set;
    }
    set.kind = Statement::Kind::kSetBlock;
    set.value = ParseFilters(Node(Kind::kCaptured));
    ExpectBlockEnd();
    set.body = ParseBody({"endset"});
    ExpectEndTag("endset");
    return set;
  }

  std::vector<Parameter> ParseParameters() {
    std::vector<Parameter> parameters;
    ExpectOperator("(");
    while (!IsOperator(")")) {
      if (!parameters.empty()) ExpectOperator(",");
      if (IsOperator(")")) break;
      Parameter& parameter = parameters.emplace_back();
      parameter.name = TakeName();
      if (SkipOperator("=")) {
        parameter.otherwise = ParseExpression();
      } else if (parameters.size() > 1 && parameters[parameters.size() - 2].otherwise) {
        Fail(Format("parameter '{}' needs a default, since one before it has one", parameter.name));
      }
    }
    ExpectOperator(")");
    return parameters;
  }
  // Behind the parameters.
  void ParseMacroBody(MacroSyntax& macro, std::string_view end) {
    ExpectBlockEnd();
    const int loops = std::exchange(loops_, 0);
    open_macros_.push_back(&macro);
    macro.body = ParseBody({end});
    open_macros_.pop_back();
    loops_ = loops;
    ExpectEndTag(end);
  }
  Statement ParseMacro() {
    Statement made = NewStatement(Statement::Kind::kMacro);
    ExpectName("macro");
    auto macro = std::make_unique<MacroSyntax>();
    macro->name = TakeName();
    macro->parameters = ParseParameters();
    ParseMacroBody(*macro, "endmacro");
    made.macro = std::move(macro);
    return made;
  }
  Statement ParseCallBlock() {
    Statement made = NewStatement(Statement::Kind::kCall);
    ExpectName("call");
    auto caller = std::make_unique<MacroSyntax>();
    caller->name = "caller";
    if (IsOperator("(")) caller->parameters = ParseParameters();
    made.value = ParseExpression();
    if (made.value->kind != Kind::kCall) Fail("a call is expected");
    ParseMacroBody(*caller, "endcall");
    made.macro = std::move(caller);
    return made;
  }

  Statement ParseFilterBlock() {
    Statement made = NewStatement(Statement::Kind::kFilter);
    ExpectName("filter");
    made.value = ParseFilters(ParseFilter(Node(Kind::kCaptured)));
    ExpectBlockEnd();
    made.body = ParseBody({"endfilter"});
    ExpectEndTag("endfilter");
    return made;
  }
  Statement ParseWith() {
    Statement made = NewStatement(Statement::Kind::kWith);
    ExpectName("with");
    while (current().kind != Token::Kind::kBlockEnd) {
      if (!made.targets.empty()) ExpectOperator(",");
      made.targets.push_back(ParsePrimary());
      CheckTarget(*made.targets.back());
      ExpectOperator("=");
      made.values.push_back(ParseExpression());
    }
    ExpectBlockEnd();
    made.body = ParseBody({"endwith"});
    ExpectEndTag("endwith");
    return made;
  }
  Statement ParseLoopControl() {
    const bool is_break = IsName("break");
    if (loops_ == 0) Fail(Format("'{}' outside of a loop", current().text));
    Statement made =
        NewStatement(is_break ? Statement::Kind::kBreak : Statement::Kind::kContinue);
    Take();
    ExpectBlockEnd();
    return made;
  }
  // A block that changes nothing here but for names that are set in it.
  Statement ParseScope(std::string_view end) {
    Statement made = NewStatement(Statement::Kind::kScope);
    Take();
    while (current().kind != Token::Kind::kBlockEnd) {
      if (current().kind == Token::Kind::kEnd) Fail("the end of the block tag is expected");
      Take();
    }
    ExpectBlockEnd();
    const int loops = std::exchange(loops_, 0);
    made.body = ParseBody({end});
    loops_ = loops;
    ExpectName(end);
    if (current().kind == Token::Kind::kName) Take();
    ExpectBlockEnd();
    return made;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  uint32_t level_ = 0;
  int loops_ = 0;  // around the current statement, within its macro
  std::vector<MacroSyntax*> open_macros_;
};

}  // namespace

Body ParseTemplate(std::string_view text) { return Parser(text).Run(); }

}  // namespace moestro::jinja
