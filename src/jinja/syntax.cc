// SPDX-License-Identifier: MIT
#include "jinja/syntax.h"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <utility>

#include "jinja/expression_parser.h"

namespace moestro::jinja {
namespace {

class TemplateParser {
 public:
  explicit TemplateParser(std::string_view text) : tokens_(text) {}

  Body Run() { return ParseBody({}); }

 private:
  // Parses up to a tag of one of these names, which is left to the caller.
  Body ParseBody(std::initializer_list<std::string_view> ends) {
    const TokenReader::Level level(tokens_);
    Body body;
    while (true) {
      switch (tokens_.current().kind) {
        case Token::Kind::kEnd:
          if (ends.size() > 0)
            tokens_.Fail(Format("the template ends before '{}'", *(ends.end() - 1)));
          return body;
        case Token::Kind::kText: {
          Statement text;
          text.text = tokens_.Take().text;
          body.push_back(std::move(text));
          break;
        }
        case Token::Kind::kPrintBegin: {
          Statement print = NewStatement(Statement::Kind::kPrint);
          tokens_.Take();
          print.value = expressions_.ParseTuple({});
          tokens_.Expect(Token::Kind::kPrintEnd, "the end of the print tag");
          body.push_back(std::move(print));
          break;
        }
        default:
          tokens_.Expect(Token::Kind::kBlockBegin, "a tag");
          if (tokens_.current().kind == Token::Kind::kName &&
              std::ranges::contains(ends, tokens_.current().text))
            return body;
          body.push_back(ParseStatement());
      }
    }
  }
  // Parses the tag that ends a body: its name, to the end of the tag.
  void ExpectEndTag(std::string_view name) {
    tokens_.ExpectName(name);
    tokens_.ExpectBlockEnd();
  }
  Statement NewStatement(Statement::Kind kind) const {
    Statement made;
    made.kind = kind;
    made.line = tokens_.current().line;
    return made;
  }

  Statement ParseStatement() {
    const std::string name =
        tokens_.current().kind == Token::Kind::kName ? tokens_.current().text : "";
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
    tokens_.Fail(Format("{} is no tag that is known",
                        name.empty() ? tokens_.Found() : Format("'{}'", name)));
  }

  Statement ParseFor() {
    Statement loop = NewStatement(Statement::Kind::kFor);
    tokens_.ExpectName("for");
    loop.target = expressions_.ParseTarget("in", /*may_be_member=*/false);
    tokens_.ExpectName("in");
    loop.value = expressions_.ParseTuple({.with_condition = false, .end_name = "recursive"});
    if (tokens_.SkipName("if")) loop.condition = expressions_.ParseExpression();
    loop.is_recursive = tokens_.SkipName("recursive");
    tokens_.ExpectBlockEnd();
    ++loops_;
    loop.body = ParseBody({"endfor", "else"});
    --loops_;
    if (tokens_.SkipName("else")) {
      tokens_.ExpectBlockEnd();
      loop.other = ParseBody({"endfor"});
    }
    ExpectEndTag("endfor");
    return loop;
  }

  Statement ParseIf() {
    Statement chosen = NewStatement(Statement::Kind::kIf);
    tokens_.ExpectName("if");
    do {
      Branch& branch = chosen.branches.emplace_back();
      branch.condition = expressions_.ParseTuple({.with_condition = false});
      tokens_.ExpectBlockEnd();
      branch.body = ParseBody({"elif", "else", "endif"});
    } while (tokens_.SkipName("elif"));
    if (tokens_.SkipName("else")) {
      tokens_.ExpectBlockEnd();
      chosen.branches.emplace_back().body = ParseBody({"endif"});
    }
    ExpectEndTag("endif");
    return chosen;
  }

  Statement ParseSet() {
    Statement set = NewStatement(Statement::Kind::kSet);
    tokens_.ExpectName("set");
    set.target = expressions_.ParseTarget({}, /*may_be_member=*/true);
    if (tokens_.SkipOperator("=")) {
      set.value = expressions_.ParseTuple({});
      tokens_.ExpectBlockEnd();
      return set;
    }
    set.kind = Statement::Kind::kSetBlock;
    set.value = expressions_.ParseFilters(expressions_.Captured());
    tokens_.ExpectBlockEnd();
    set.body = ParseBody({"endset"});
    ExpectEndTag("endset");
    return set;
  }

  // Behind the parameters.
  void ParseMacroBody(MacroSyntax& macro, std::string_view end) {
    tokens_.ExpectBlockEnd();
    const int loops = std::exchange(loops_, 0);
    expressions_.OpenMacro(macro);
    macro.body = ParseBody({end});
    expressions_.CloseMacro();
    loops_ = loops;
    ExpectEndTag(end);
  }
  Statement ParseMacro() {
    Statement made = NewStatement(Statement::Kind::kMacro);
    tokens_.ExpectName("macro");
    auto macro = std::make_unique<MacroSyntax>();
    macro->name = tokens_.TakeName();
    macro->parameters = expressions_.ParseParameters();
    ParseMacroBody(*macro, "endmacro");
    made.macro = std::move(macro);
    return made;
  }
  Statement ParseCallBlock() {
    Statement made = NewStatement(Statement::Kind::kCall);
    tokens_.ExpectName("call");
    auto caller = std::make_unique<MacroSyntax>();
    caller->name = "caller";
    if (tokens_.IsOperator("(")) caller->parameters = expressions_.ParseParameters();
    made.value = expressions_.ParseExpression();
    if (made.value->kind != Expression::Kind::kCall) tokens_.Fail("a call is expected");
    ParseMacroBody(*caller, "endcall");
    made.macro = std::move(caller);
    return made;
  }

  Statement ParseFilterBlock() {
    Statement made = NewStatement(Statement::Kind::kFilter);
    tokens_.ExpectName("filter");
    made.value = expressions_.ParseFilters(expressions_.ParseFilter(expressions_.Captured()));
    tokens_.ExpectBlockEnd();
    made.body = ParseBody({"endfilter"});
    ExpectEndTag("endfilter");
    return made;
  }
  Statement ParseWith() {
    Statement made = NewStatement(Statement::Kind::kWith);
    tokens_.ExpectName("with");
    while (tokens_.current().kind != Token::Kind::kBlockEnd) {
      if (!made.targets.empty()) tokens_.ExpectOperator(",");
      made.targets.push_back(expressions_.ParsePrimary());
      expressions_.CheckTarget(*made.targets.back());
      tokens_.ExpectOperator("=");
      made.values.push_back(expressions_.ParseExpression());
    }
    tokens_.ExpectBlockEnd();
    made.body = ParseBody({"endwith"});
    ExpectEndTag("endwith");
    return made;
  }
  Statement ParseLoopControl() {
    const bool is_break = tokens_.IsName("break");
    if (loops_ == 0) tokens_.Fail(Format("'{}' outside of a loop", tokens_.current().text));
    Statement made = NewStatement(is_break ? Statement::Kind::kBreak : Statement::Kind::kContinue);
    tokens_.Take();
    tokens_.ExpectBlockEnd();
    return made;
  }
  // Parses a block whose only effect here is a scope for its names.
  Statement ParseScope(std::string_view end) {
    Statement made = NewStatement(Statement::Kind::kScope);
    tokens_.Take();
    while (tokens_.current().kind != Token::Kind::kBlockEnd) {
      if (tokens_.current().kind == Token::Kind::kEnd)
        tokens_.Fail("the end of the block tag is expected");
      tokens_.Take();
    }
    tokens_.ExpectBlockEnd();
    const int loops = std::exchange(loops_, 0);
    made.body = ParseBody({end});
    loops_ = loops;
    tokens_.ExpectName(end);
    if (tokens_.current().kind == Token::Kind::kName) tokens_.Take();
    tokens_.ExpectBlockEnd();
    return made;
  }

  TokenReader tokens_;
  ExpressionParser expressions_{tokens_};
  int loops_ = 0;  // loops around the current statement, within its macro
};

}  // namespace

Body ParseTemplate(std::string_view text) { return TemplateParser(text).Run(); }

}  // namespace moestro::jinja
