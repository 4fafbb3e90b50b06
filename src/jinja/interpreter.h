// SPDX-License-Identifier: MIT
// Walks a template's tree (syntax.h) and writes its text.
//
// Failure: throws Failure where Jinja raises. Recursion is bounded: a template cannot overflow the
// stack.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/object.h"
#include "jinja/syntax.h"
#include "jinja/value.h"

namespace moestro::jinja {

// Names that are set in a part of a template, and the scope around the part.
struct Scope {
  std::map<std::string, Value, std::less<>> names;
  std::shared_ptr<Scope> outer;  // null: the outermost

  // nullptr: no scope has the name.
  const Value* Find(std::string_view name) const;
  void Set(std::string_view name, Value value);
};
using ScopePtr = std::shared_ptr<Scope>;

struct InterpreterHost {
  std::function<void(std::string_view)> write;  // takes the text, in parts
  std::function<std::tm()> now;                 // the time of day for templates that use it
  uint64_t most_steps = 0;                      // most statements and expressions; 0: any number
};

class Interpreter {
 public:
  explicit Interpreter(InterpreterHost host);
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;
  ~Interpreter();

  // Writes the text of `body`; before a Failure also a part of the text.
  void Run(const Body& body, const Dict& variables);

  // For filters, tests and methods.
  Value GetAttribute(const Value& value, std::string_view name);
  Value GetItem(const Value& value, const Value& key);
  Value Call(const Value& callee, Arguments& arguments);
  std::tm Now() const { return host_.now(); }
  // Call before `added` becomes part of the older value `owner`: `owner` may then hold itself, and
  // is emptied at the rendering's end.
  void NoteChange(const Value& owner, const Value& added);

  // For macros and loops that call themselves.
  Value CallMacro(const MacroSyntax& macro, const ScopePtr& around, Arguments& arguments);
  Value CallLoop(const Statement& loop, const ScopePtr& around, const Value& items, int depth);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  Value Evaluate(const Expression& expression);
  Value EvaluateKind(const Expression& expression);
  Value EvaluateName(const Expression& expression);
  Value EvaluateUnary(const Expression& expression);
  Value EvaluateCompare(const Expression& expression);
  Value EvaluateConcat(const Expression& expression);
  Value EvaluateDict(const Expression& expression);
  Value EvaluateItem(const Expression& expression);
  Value EvaluateCall(const Expression& expression, Arguments extra);
  Value EvaluateFilter(const Expression& expression);
  std::vector<Value> EvaluateAll(const std::vector<ExpressionPtr>& parts);
  Arguments EvaluateArguments(const Expression& expression);

  void ExecuteAll(const Body& body, Flow& flow);
  Flow Execute(const Statement& statement);
  Flow ExecuteIf(const Statement& statement);
  void ExecuteFor(const Statement& statement);
  void RunLoop(const Statement& loop, const Value& items, int depth);
  std::vector<Value> SelectItems(const Statement& loop, std::vector<Value> items);
  void ExecuteWith(const Statement& statement);
  void ExecuteCallBlock(const Statement& statement);
  void DefineMacro(const Statement& statement);
  void Assign(const Expression& target, const Value& value);
  void AssignMember(const Expression& target, const Value& value);
  void AssignEach(const Expression& targets, const Value& value);
  // The text that `body` writes, in a scope of its own.
  std::string Capture(const Body& body);
  Value Filtered(const Statement& statement);

  void Write(std::string_view text);
  void Step();  // counts, and limits the stack

  const InterpreterHost host_;
  uint64_t steps_ = 0;
  uintptr_t stack_begin_ = 0;  // top of the stack when the rendering began
  ScopePtr scope_;
  std::string text_;           // not yet given to the host
  std::string* out_ = &text_;  // destination of statements' text
  Value captured_;             // a block's text, for the block's filters
  // Scopes held by macros and loops, which the scopes may hold in turn.
  std::vector<ScopePtr> held_scopes_;
  std::vector<Value> changed_;  // containers that may hold themselves
};

// Jinja's filters and tests by name; Failure for an unknown name.
Value ApplyFilter(Interpreter& interpreter, std::string_view name, const Value& input,
                  Arguments& arguments);
bool HasFilter(std::string_view name);
bool ApplyTest(std::string_view name, const Value& input, Arguments& arguments);
bool HasTest(std::string_view name);

// Python's methods of texts, lists and dicts.
bool HasMethod(const Value& value, std::string_view name);
// REQUIRES: HasMethod().
Value CallMethod(Interpreter& interpreter, const Value& self, std::string_view name,
                 Arguments& arguments);

// range(), dict(), namespace() and so on.
void AddGlobals(Scope& scope);

// a + b and the like.
Value Combine(Operator op, const Value& a, const Value& b);
// a < b, a in b and the like.
bool Compare(Operator op, const Value& a, const Value& b);
bool Contains(const Value& container, const Value& item);
// value[begin:end:step]; an undefined bound is left out.
Value Slice(const Value& value, const Value& begin, const Value& end, const Value& step);

}  // namespace moestro::jinja
