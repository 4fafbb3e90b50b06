// SPDX-License-Identifier: MIT
// A parsed template as a tree: the parser makes it, the interpreter (interpreter.h)
// walks it. Immutable after parsing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace moestro::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

// One argument of a call: 1, key=1, *list, **dict.
struct ArgumentSyntax {
  enum class Form : uint8_t { kPlain, kNamed, kSpreadList, kSpreadDict };
  Form form = Form::kPlain;
  std::string name;
  ExpressionPtr value;
};

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kIn,
  kNotIn,
  kNot,
  kMinus,
  kPlus,
};

struct Expression {
  enum class Kind : uint8_t {
    kConstant,   // constant
    kCaptured,   // the text of the block that filters are applied to
    kName,       // name
    kList,       // parts
    kTuple,      // parts
    kDict,       // parts: key, value, key, value...
    kUnary,      // operators[0] parts[0]
    kBinary,     // parts[0] operators[0] parts[1]
    kAnd,        // parts[0], parts[1]
    kOr,         // parts[0], parts[1]
    kConcat,     // parts joined as texts
    kCompare,    // parts[0] operators[0] parts[1] operators[1] parts[2]...
    kCondition,  // parts[1] if parts[0] else parts[2], which may be null
    kAttribute,  // parts[0].name
    kMember,     // a place that is set: parts[0].name
    kItem,       // parts[0][parts[1]]
    kSlice,      // in kItem: parts[0]:parts[1]:parts[2], each may be null
    kCall,       // parts[0](arguments)
    kFilter,     // parts[0] | name(arguments)
    kTest,       // parts[0] is name(arguments), is not if negated
  };
  Kind kind = Kind::kConstant;
  bool is_negated = false;
  uint32_t line = 0;
  uint32_t depth = 1;  // levels of the tree
  std::string name;
  Value constant;
  std::vector<ExpressionPtr> parts;
  std::vector<Operator> operators;
  std::vector<ArgumentSyntax> arguments;
};

struct Statement;
using Body = std::vector<Statement>;

struct Parameter {
  std::string name;
  ExpressionPtr otherwise;  // null: none
};

// A macro, or the body of a {% call %} block.
struct MacroSyntax {
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  // The body uses these variables.
  bool takes_varargs = false;
  bool takes_kwargs = false;
  bool takes_caller = false;
};

struct Branch {
  ExpressionPtr condition;  // null: else
  Body body;
};

struct Statement {
  enum class Kind : uint8_t {
    kText,      // text
    kPrint,     // value
    kFor,       // for target in value if condition: body, else: other
    kIf,        // branches
    kSet,       // target = value
    kSetBlock,  // target = the body's text, through the filters of value, if any
    kMacro,     // macro
    kCall,      // value is a call, macro its caller
    kFilter,    // the body's text through the filters of value
    kWith,      // body, in which targets[i] = values[i]
    kScope,     // a body with names of its own
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  bool is_recursive = false;  // kFor
  uint32_t line = 0;
  std::string text;
  ExpressionPtr target;  // a name, an attribute of a name, or a tuple of targets
  ExpressionPtr value;
  ExpressionPtr condition;
  Body body;
  Body other;
  std::vector<Branch> branches;
  std::unique_ptr<const MacroSyntax> macro;
  // kWith.
  std::vector<ExpressionPtr> targets;
  std::vector<ExpressionPtr> values;
};

// Parses a template into a tree, by Jinja's grammar with its loop controls and transformers' block
// {% generation %}. Templates cannot include or extend others.

// Throws Failure with the line of the mistake.
Body ParseTemplate(std::string_view text);

}  // namespace moestro::jinja
