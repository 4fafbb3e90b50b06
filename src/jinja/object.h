// SPDX-License-Identifier: MIT
// Values that a template can call or whose attributes it can read, beside texts, lists and dicts:
// functions, macros, namespaces, loops.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace moestro::jinja {

class Interpreter;

// The arguments of a call: f(1, 2, key=3).
struct Arguments {
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> named;
};

// Takes a call's arguments one after the other by place or by name, as a Python function declares
// them. Throws for an argument that is given twice, missing, or left over.
class ArgumentReader {
 public:
  ArgumentReader(std::string_view function, Arguments& arguments)
      : function_(function), arguments_(arguments) {}

  Value Take(std::string_view name);  // needed
  Value Take(std::string_view name, Value otherwise);
  std::optional<Value> TakeIfGiven(std::string_view name);
  void ExpectEnd() const;

 private:
  std::string_view function_;
  Arguments& arguments_;
  size_t next_ = 0;
  size_t taken_names_ = 0;
};

class Object {
 public:
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;

  virtual std::string_view type_name() const = 0;
  virtual bool is_callable() const { return false; }
  // nullopt: no such attribute.
  virtual std::optional<Value> Attribute(std::string_view name) const;
  virtual Value Call(Interpreter& interpreter, Arguments& arguments);
  // Moves the object's values to `to`, before the object ends.
  virtual void Unload(std::vector<Value>& /*to*/) {}

  bool is_noted = false;  // Interpreter::NoteChange()
};

class Function final : public Object {
 public:
  using Body = std::function<Value(Interpreter&, Arguments&)>;
  explicit Function(Body body) : body_(std::move(body)) {}

  std::string_view type_name() const override { return "function"; }
  bool is_callable() const override { return true; }
  Value Call(Interpreter& interpreter, Arguments& arguments) override {
    return body_(interpreter, arguments);
  }

 private:
  Body body_;
};
Value MakeFunction(Function::Body body);

// A namespace, whose members {% set ns.key = ... %} may change.
class Namespace final : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  std::optional<Value> Attribute(std::string_view name) const override;
  void Unload(std::vector<Value>& to) override { members_.Unload(to); }
  Dict& members() { return members_; }

 private:
  Dict members_;
};

// Python's two ways to put values into a text: "%s has %d" % ("a", 3) and "{} has {n}".format(...).
// Both functions escape the values that they put into an escaped text. REQUIRES: `text` is a text.
// `values`: a tuple, a dict for %(name)s, or the only value.
Value FormatPercent(const Value& text, const Value& values);
// Fields may contain attributes and items: {0.name}, {n[key]}.
Value FormatBraces(Interpreter& interpreter, const Value& text, const Arguments& arguments);

}  // namespace moestro::jinja
