// SPDX-License-Identifier: MIT
#include "jinja/interpreter.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "jinja/failure.h"
#include "jinja/loop_and_macro.h"

namespace moestro::jinja {
namespace {

constexpr size_t kTextPart = size_t{64} << 10U;
// Stack for expressions, statements and calls within each other; a template's process has 4 MiB.
constexpr uintptr_t kMostStackBytes = uintptr_t{2} << 20U;

// Puts another value in a place for the object's lifetime.
template <class T>
class Replaced {
 public:
  Replaced(T& place, T value) : place_(place), before_(std::exchange(place, std::move(value))) {}
  Replaced(const Replaced&) = delete;
  Replaced& operator=(const Replaced&) = delete;
  ~Replaced() { place_ = std::move(before_); }

 private:
  T& place_;
  T before_;
};

ScopePtr ScopeWithin(const ScopePtr& outer) {
  auto scope = std::make_shared<Scope>();
  scope->outer = outer;
  return scope;
}

Value Negative(const Value& big) {
  std::string digits = big.digits();
  digits.starts_with('-') ? digits.erase(0, 1) : digits.insert(0, 1, '-');
  return WholeOfText(digits, 10).value_or(big);
}

std::string DescriptionOf(const Value& value) {
  if (value.is_none()) return "None";
  return Format("{} object", TypeName(value));
}

}  // namespace

const Value* Scope::Find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer.get()) {
    const auto found = scope->names.find(name);
    if (found != scope->names.end()) return &found->second;
  }
  return nullptr;
}

void Scope::Set(std::string_view name, Value value) {
  names.insert_or_assign(std::string(name), std::move(value));
}

Interpreter::Interpreter(InterpreterHost host) : host_(std::move(host)) {}

Interpreter::~Interpreter() {
  for (const ScopePtr& scope : held_scopes_) scope->names.clear();
  std::vector<Value> doomed;
  for (Value& value : changed_) value.UnloadShared(doomed);
  FreeAll(std::move(doomed));
}

void Interpreter::Run(const Body& body, const Dict& variables) {
  stack_begin_ = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  const auto globals = std::make_shared<Scope>();
  AddGlobals(*globals);
  scope_ = ScopeWithin(globals);
  for (const auto& [name, value] : variables.members()) {
    if (name.is_text()) scope_->Set(name.text(), value);
  }
  Flow flow = Flow::kNext;
  ExecuteAll(body, flow);
  host_.write(text_);
  text_.clear();
}

void Interpreter::NoteChange(const Value& owner, const Value& added) {
  if (!added.is_container()) return;
  bool& is_noted = owner.is_list()   ? owner.list().is_noted
                   : owner.is_dict() ? owner.dict().is_noted
                                     : owner.object().is_noted;
  if (!std::exchange(is_noted, true)) changed_.push_back(owner);
}

void Interpreter::Step() {
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if (stack_begin_ > here && stack_begin_ - here > kMostStackBytes) {
    Raise("too many calls and expressions within each other");
  }
  if (++steps_ > host_.most_steps && host_.most_steps > 0) {
    Raise("more than {} steps", host_.most_steps);
  }
}

void Interpreter::Write(std::string_view text) {
  if (out_->size() + text.size() > kMostTextBytes) {
    Raise("a text of more than {} bytes", kMostTextBytes);
  }
  *out_ += text;
  if (out_ == &text_ && text_.size() >= kTextPart) {
    host_.write(text_);
    text_.clear();
  }
}

// --- Expressions.

Value Interpreter::Evaluate(const Expression& expression) {
  Step();
  return EvaluateKind(expression);
}

Value Interpreter::EvaluateKind(const Expression& expression) {
  using Kind = Expression::Kind;
  switch (expression.kind) {
    case Kind::kConstant:
      return expression.constant;
    case Kind::kCaptured:
      return captured_;
    case Kind::kName:
      return EvaluateName(expression);
    case Kind::kList:
      return Value::MakeList(EvaluateAll(expression.parts));
    case Kind::kTuple:
      return Value::Tuple(EvaluateAll(expression.parts));
    case Kind::kDict:
      return EvaluateDict(expression);
    case Kind::kUnary:
      return EvaluateUnary(expression);
    case Kind::kBinary: {
      const Value left = Evaluate(*expression.parts[0]);
      return Combine(expression.operators[0], left, Evaluate(*expression.parts[1]));
    }
    case Kind::kAnd: {
      Value left = Evaluate(*expression.parts[0]);
      return IsTrue(left) ? Evaluate(*expression.parts[1]) : std::move(left);
    }
    case Kind::kOr: {
      Value left = Evaluate(*expression.parts[0]);
      return IsTrue(left) ? std::move(left) : Evaluate(*expression.parts[1]);
    }
    case Kind::kConcat:
      return EvaluateConcat(expression);
    case Kind::kCompare:
      return EvaluateCompare(expression);
    case Kind::kCondition: {
      const bool is_true = IsTrue(Evaluate(*expression.parts[0]));
      const ExpressionPtr& chosen = expression.parts[is_true ? 1 : 2];
      if (chosen) return Evaluate(*chosen);
      return Value::Undefined("a condition without 'else' is false");
    }
    case Kind::kAttribute:
      return GetAttribute(Evaluate(*expression.parts[0]), expression.name);
    case Kind::kItem:
      return EvaluateItem(expression);
    case Kind::kSlice:
    case Kind::kMember:
      Raise("a slice among other subscripts");
    case Kind::kCall:
      return EvaluateCall(expression, {});
    case Kind::kFilter:
      return EvaluateFilter(expression);
    case Kind::kTest: {
      const Value input = Evaluate(*expression.parts[0]);
      Arguments arguments = EvaluateArguments(expression);
      return Value(ApplyTest(expression.name, input, arguments) != expression.is_negated);
    }
  }
  return {};
}

Value Interpreter::EvaluateName(const Expression& expression) {
  if (const Value* value = scope_->Find(expression.name)) return *value;
  return Value::Undefined(Format("'{}' is undefined", expression.name));
}

std::vector<Value> Interpreter::EvaluateAll(const std::vector<ExpressionPtr>& parts) {
  std::vector<Value> values;
  values.reserve(parts.size());
  for (const ExpressionPtr& part : parts) values.push_back(Evaluate(*part));
  return values;
}

Value Interpreter::EvaluateDict(const Expression& expression) {
  Value dict = Value::MakeDict();
  for (size_t i = 0; i + 1 < expression.parts.size(); i += 2) {
    const Value key = Evaluate(*expression.parts[i]);
    dict.dict().Set(key, Evaluate(*expression.parts[i + 1]));
  }
  return dict;
}

Value Interpreter::EvaluateUnary(const Expression& expression) {
  const Value value = Evaluate(*expression.parts[0]);
  if (expression.operators[0] == Operator::kNot) return Value(!IsTrue(value));
  const bool is_minus = expression.operators[0] == Operator::kMinus;
  if (value.is_undefined()) Raise("{}", value.why_undefined());
  if (!value.is_number()) {
    Raise("bad operand type for unary {}: '{}'", is_minus ? '-' : '+', TypeName(value));
  }
  if (value.kind() == Value::Kind::kFloat) return Value(is_minus ? -value.real() : value.real());
  if (value.kind() == Value::Kind::kBigInt) return is_minus ? Negative(value) : value;
  return Combine(is_minus ? Operator::kSubtract : Operator::kAdd, Value(int64_t{0}), value);
}

Value Interpreter::EvaluateConcat(const Expression& expression) {
  std::string text;
  for (const ExpressionPtr& part : expression.parts) {
    text += TextOf(Evaluate(*part));
    if (text.size() > kMostTextBytes) Raise("a text of more than {} bytes", kMostTextBytes);
  }
  return Value(std::move(text));
}

Value Interpreter::EvaluateCompare(const Expression& expression) {
  Value left = Evaluate(*expression.parts[0]);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = Evaluate(*expression.parts[i + 1]);
    if (!Compare(expression.operators[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::EvaluateItem(const Expression& expression) {
  const Value value = Evaluate(*expression.parts[0]);
  const Expression& key = *expression.parts[1];
  if (key.kind != Expression::Kind::kSlice) return GetItem(value, Evaluate(key));
  const auto bound = [&](size_t i) {
    return key.parts[i] ? Evaluate(*key.parts[i]) : Value::None();
  };
  const Value begin = bound(0);
  const Value end = bound(1);
  return Slice(value, begin, end, bound(2));
}

Arguments Interpreter::EvaluateArguments(const Expression& expression) {
  using Form = ArgumentSyntax::Form;
  Arguments arguments;
  for (const ArgumentSyntax& argument : expression.arguments) {
    Value value = Evaluate(*argument.value);
    if (argument.form == Form::kPlain) {
      arguments.values.push_back(std::move(value));
    } else if (argument.form == Form::kNamed) {
      arguments.named.emplace_back(argument.name, std::move(value));
    } else if (argument.form == Form::kSpreadList) {
      std::ranges::move(ItemsOf(value), std::back_inserter(arguments.values));
    } else {
      if (!value.is_dict()) Raise("behind '**' stands a '{}', not a dict", TypeName(value));
      for (const auto& [name, member] : value.dict().members()) {
        arguments.named.emplace_back(TextOf(name), member);
      }
    }
  }
  return arguments;
}

// `extra` comes behind the arguments that are written.
Value Interpreter::EvaluateCall(const Expression& expression, Arguments extra) {
  const auto arguments_of_call = [&] {
    Arguments arguments = EvaluateArguments(expression);
    std::ranges::move(extra.named, std::back_inserter(arguments.named));
    return arguments;
  };
  const Expression& callee = *expression.parts[0];
  if (callee.kind != Expression::Kind::kAttribute) {
    const Value function = Evaluate(callee);
    Arguments arguments = arguments_of_call();
    return Call(function, arguments);
  }
  const Value self = Evaluate(*callee.parts[0]);
  if (HasMethod(self, callee.name)) {
    Arguments arguments = arguments_of_call();
    return CallMethod(*this, self, callee.name, arguments);
  }
  const Value function = GetAttribute(self, callee.name);
  Arguments arguments = arguments_of_call();
  return Call(function, arguments);
}

Value Interpreter::EvaluateFilter(const Expression& expression) {
  const Value input = Evaluate(*expression.parts[0]);
  Arguments arguments = EvaluateArguments(expression);
  return ApplyFilter(*this, expression.name, input, arguments);
}

Value Interpreter::Call(const Value& callee, Arguments& arguments) {
  Step();
  if (callee.is_undefined()) Raise("{}", callee.why_undefined());
  if (!callee.is_object()) Raise("'{}' object is not callable", TypeName(callee));
  // Shared ownership: the object may leave its scope while it runs.
  const std::shared_ptr<Object> object = callee.shared_object();
  return object->Call(*this, arguments);
}

// Methods go before keys.
Value Interpreter::GetAttribute(const Value& value, std::string_view name) {
  if (value.is_undefined()) Raise("{}", value.why_undefined());
  if (HasMethod(value, name)) {
    return MakeFunction(
        [value, name = std::string(name)](Interpreter& interpreter, Arguments& arguments) {
          return CallMethod(interpreter, value, name, arguments);
        });
  }
  if (value.is_object()) {
    if (auto attribute = value.object().Attribute(name)) return *attribute;
  }
  if (value.is_dict()) {
    if (const Value* member = value.dict().Find(name)) return *member;
  }
  if (value.is_list() && value.list().form == List::Form::kGroup) {
    if (name == "grouper") return value.list().items[0];
    if (name == "list") return value.list().items[1];
  }
  if (name.starts_with("__") && name.ends_with("__")) {
    return Value::Undefined(
        Format("access to attribute '{}' of '{}' object is unsafe", name, TypeName(value)));
  }
  return Value::Undefined(Format("'{}' has no attribute '{}'", DescriptionOf(value), name));
}

// Keys go before methods.
Value Interpreter::GetItem(const Value& value, const Value& key) {
  if (value.is_undefined()) Raise("{}", value.why_undefined());
  if (value.is_dict()) {
    if (const Value* member = value.dict().Find(key)) return *member;
  } else if (key.kind() == Value::Kind::kInt || key.kind() == Value::Kind::kBool) {
    int64_t index = WholeOf(key, "an index");
    if (value.has_places() || value.is_text()) {
      const auto length = static_cast<int64_t>(LengthOf(value));
      if (index < 0) index += length;
      if (index < 0 || index >= length) {
        return Value::Undefined(Format("{} has no element {}", DescriptionOf(value), TextOf(key)));
      }
      if (value.is_list()) return value.list().items[static_cast<size_t>(index)];
      return Slice(value, Value(index), Value(index + 1), Value::None());
    }
  }
  if (key.is_text()) return GetAttribute(value, key.text());
  return Value::Undefined(Format("'{}' has no attribute '{}'", DescriptionOf(value), TextOf(key)));
}

// --- Statements.

void Interpreter::ExecuteAll(const Body& body, Flow& flow) {
  for (const Statement& statement : body) {
    try {
      flow = Execute(statement);
    } catch (Failure& failure) {
      failure.SetLine(statement.line);
      throw;
    }
    if (flow != Flow::kNext) return;
  }
}

Interpreter::Flow Interpreter::Execute(const Statement& statement) {
  using Kind = Statement::Kind;
  Step();
  switch (statement.kind) {
    case Kind::kText:
      Write(statement.text);
      break;
    case Kind::kPrint: {
      const Value value = Evaluate(*statement.value);
      value.is_text() ? Write(value.text()) : Write(TextOf(value));
      break;
    }
    case Kind::kFor:
      ExecuteFor(statement);
      break;
    case Kind::kIf:
      return ExecuteIf(statement);
    case Kind::kSet:
      Assign(*statement.target, Evaluate(*statement.value));
      break;
    case Kind::kSetBlock:
      Assign(*statement.target, Filtered(statement));
      break;
    case Kind::kMacro:
      DefineMacro(statement);
      break;
    case Kind::kCall:
      ExecuteCallBlock(statement);
      break;
    case Kind::kFilter:
      Write(TextOf(Filtered(statement)));
      break;
    case Kind::kWith:
      ExecuteWith(statement);
      break;
    case Kind::kScope: {
      const Replaced<ScopePtr> inner(scope_, ScopeWithin(scope_));
      Flow flow = Flow::kNext;
      ExecuteAll(statement.body, flow);
      break;
    }
    case Kind::kBreak:
      return Flow::kBreak;
    case Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::ExecuteIf(const Statement& statement) {
  Flow flow = Flow::kNext;
  for (const Branch& branch : statement.branches) {
    if (branch.condition && !IsTrue(Evaluate(*branch.condition))) continue;
    ExecuteAll(branch.body, flow);
    break;
  }
  return flow;
}

void Interpreter::ExecuteFor(const Statement& statement) {
  RunLoop(statement, Evaluate(*statement.value), 0);
}

// The items that satisfy the loop's condition, which is evaluated outside the loop.
std::vector<Value> Interpreter::SelectItems(const Statement& loop, std::vector<Value> items) {
  if (!loop.condition) return items;
  std::vector<Value> selected;
  for (Value& item : items) {
    const Replaced<ScopePtr> inner(scope_, ScopeWithin(scope_));
    Assign(*loop.target, item);
    if (IsTrue(Evaluate(*loop.condition))) selected.push_back(std::move(item));
  }
  return selected;
}

void Interpreter::RunLoop(const Statement& loop, const Value& items, int depth) {
  const auto state = std::make_shared<Loop>(loop, scope_, SelectItems(loop, ItemsOf(items)), depth);
  // As in jinja2, "else" also follows a loop in which no round reached the body's end.
  bool needs_else = true;
  for (size_t round = 0; round < state->items().size(); ++round) {
    state->Begin(round);
    const Replaced<ScopePtr> inner(scope_, ScopeWithin(scope_));
    scope_->Set("loop", Value(std::static_pointer_cast<Object>(state)));
    Assign(*loop.target, state->items()[round]);
    Flow flow = Flow::kNext;
    ExecuteAll(loop.body, flow);
    if (flow == Flow::kNext) needs_else = false;
    if (flow == Flow::kBreak) break;
  }
  if (!needs_else) return;
  Flow flow = Flow::kNext;
  const Replaced<ScopePtr> inner(scope_, ScopeWithin(scope_));
  ExecuteAll(loop.other, flow);
}

Value Interpreter::CallLoop(const Statement& loop, const ScopePtr& around, const Value& items,
                            int depth) {
  std::string text;
  const Replaced<std::string*> out(out_, &text);
  const Replaced<ScopePtr> outer(scope_, around);
  RunLoop(loop, items, depth);
  return Value(std::move(text));
}

void Interpreter::ExecuteWith(const Statement& statement) {
  const std::vector<Value> values = EvaluateAll(statement.values);
  const Replaced<ScopePtr> inner(scope_, ScopeWithin(scope_));
  for (size_t i = 0; i < values.size(); ++i) Assign(*statement.targets[i], values[i]);
  Flow flow = Flow::kNext;
  ExecuteAll(statement.body, flow);
}

void Interpreter::DefineMacro(const Statement& statement) {
  held_scopes_.push_back(scope_);
  scope_->Set(statement.macro->name, Value(std::make_shared<Macro>(*statement.macro, scope_)));
}

void Interpreter::ExecuteCallBlock(const Statement& statement) {
  held_scopes_.push_back(scope_);
  Arguments extra;
  extra.named.emplace_back("caller", Value(std::make_shared<Macro>(*statement.macro, scope_)));
  Write(TextOf(EvaluateCall(*statement.value, std::move(extra))));
}

Value Interpreter::CallMacro(const MacroSyntax& macro, const ScopePtr& around,
                             Arguments& arguments) {
  const Replaced<ScopePtr> inner(scope_, ScopeWithin(around));
  const auto take_named = [&arguments](std::string_view name) -> std::optional<Value> {
    const auto found =
        std::ranges::find(arguments.named, name, &std::pair<std::string, Value>::first);
    if (found == arguments.named.end()) return std::nullopt;
    Value value = std::move(found->second);
    arguments.named.erase(found);
    return value;
  };
  size_t place = 0;
  for (const Parameter& parameter : macro.parameters) {
    auto named = take_named(parameter.name);
    if (place < arguments.values.size()) {
      if (named) Raise("macro '{}' got two values for '{}'", macro.name, parameter.name);
      scope_->Set(parameter.name, arguments.values[place++]);
    } else if (named) {
      scope_->Set(parameter.name, *std::move(named));
    } else if (parameter.otherwise) {
      scope_->Set(parameter.name, Evaluate(*parameter.otherwise));
    } else {
      scope_->Set(parameter.name,
                  Value::Undefined(Format("parameter '{}' was not provided", parameter.name)));
    }
  }
  if (macro.takes_caller) {
    auto caller = take_named("caller");
    scope_->Set("caller", caller ? *std::move(caller) : Value::Undefined("there is no caller"));
  }
  if (macro.takes_kwargs) {
    const Value rest = Value::MakeDict();
    for (auto& [name, value] : arguments.named) rest.dict().Set(name, std::move(value));
    scope_->Set("kwargs", rest);
  } else if (!arguments.named.empty()) {
    Raise("macro '{}' takes no keyword argument '{}'", macro.name, arguments.named.front().first);
  }
  if (macro.takes_varargs) {
    const auto rest = arguments.values.begin() + static_cast<std::ptrdiff_t>(place);
    scope_->Set("varargs", Value::Tuple({rest, arguments.values.end()}));
  } else if (place < arguments.values.size()) {
    Raise("macro '{}' takes not more than {} argument(s)", macro.name, macro.parameters.size());
  }
  return Value(Capture(macro.body));
}

void Interpreter::Assign(const Expression& target, const Value& value) {
  switch (target.kind) {
    case Expression::Kind::kName:
      scope_->Set(target.name, value);
      break;
    case Expression::Kind::kMember:
      AssignMember(target, value);
      break;
    default:
      AssignEach(target, value);
  }
}

void Interpreter::AssignMember(const Expression& target, const Value& value) {
  const Value owner = Evaluate(*target.parts[0]);
  auto* members = owner.is_object() ? dynamic_cast<Namespace*>(&owner.object()) : nullptr;
  if (members == nullptr) {
    Raise("'{}' of a '{}' cannot be set: only a namespace's can", target.name, TypeName(owner));
  }
  NoteChange(owner, value);
  members->members().Set(target.name, value);
}

void Interpreter::AssignEach(const Expression& targets, const Value& value) {
  if (value.is_undefined()) Raise("{}", value.why_undefined());
  const std::vector<Value> items = ItemsOf(value);
  const size_t expected = targets.parts.size();
  if (items.size() < expected) {
    Raise("not enough values to unpack (expected {}, got {})", expected, items.size());
  }
  if (items.size() > expected) Raise("too many values to unpack (expected {})", expected);
  for (size_t i = 0; i < expected; ++i) Assign(*targets.parts[i], items[i]);
}

std::string Interpreter::Capture(const Body& body) {
  std::string text;
  const Replaced<std::string*> out(out_, &text);
  const Replaced<ScopePtr> inner(scope_, ScopeWithin(scope_));
  Flow flow = Flow::kNext;
  ExecuteAll(body, flow);
  return text;
}

Value Interpreter::Filtered(const Statement& statement) {
  const Replaced<Value> captured(captured_, Value(Capture(statement.body)));
  return Evaluate(*statement.value);
}

}  // namespace moestro::jinja
