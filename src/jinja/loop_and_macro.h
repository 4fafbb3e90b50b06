// SPDX-License-Identifier: MIT
// The objects that the interpreter makes of {% for %} and {% macro %}.
#pragma once

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/failure.h"
#include "jinja/interpreter.h"

namespace moestro::jinja {

// The variable `loop` of templates.
class Loop final : public Object {
 public:
  Loop(const Statement& loop, ScopePtr around, std::vector<Value> items, int depth)
      : loop_(loop), around_(std::move(around)), items_(std::move(items)), depth_(depth) {}

  std::string_view type_name() const override { return "LoopContext"; }
  bool is_callable() const override { return loop_.is_recursive; }
  const std::vector<Value>& items() const { return items_; }
  void Begin(size_t round) { round_ = round; }

  std::optional<Value> Attribute(std::string_view name) const override {
    const auto number = [](size_t n) { return Value(static_cast<int64_t>(n)); };
    if (name == "index") return number(round_ + 1);
    if (name == "index0") return number(round_);
    if (name == "revindex") return number(items_.size() - round_);
    if (name == "revindex0") return number(items_.size() - round_ - 1);
    if (name == "first") return Value(round_ == 0);
    if (name == "last") return Value(round_ + 1 == items_.size());
    if (name == "length") return number(items_.size());
    if (name == "depth") return number(static_cast<size_t>(depth_) + 1);
    if (name == "depth0") return number(static_cast<size_t>(depth_));
    if (name == "previtem")
      return round_ > 0 ? items_[round_ - 1] : Value::Undefined("there is no previous item");
    if (name == "nextitem")
      return round_ + 1 < items_.size() ? items_[round_ + 1]
                                        : Value::Undefined("there is no next item");
    if (name == "cycle") return MakeCycle();
    if (name == "changed") return MakeChanged();
    return std::nullopt;
  }
  Value Call(Interpreter& interpreter, Arguments& arguments) override {
    if (!loop_.is_recursive) Raise("the loop is not recursive, so it cannot be called");
    ArgumentReader reader("loop", arguments);
    const Value items = reader.Take("iterable");
    reader.ExpectEnd();
    return interpreter.CallLoop(loop_, around_, items, depth_ + 1);
  }
  void Unload(std::vector<Value>& to) override {
    std::ranges::move(items_, std::back_inserter(to));
    items_.clear();
  }

 private:
  Value MakeCycle() const {
    return MakeFunction([round = round_](Interpreter&, Arguments& arguments) {
      if (arguments.values.empty()) Raise("loop.cycle() without values");
      return arguments.values[round % arguments.values.size()];
    });
  }
  Value MakeChanged() const {
    return MakeFunction([last = last_](Interpreter&, Arguments& arguments) {
      const Value now = Value::Tuple(std::move(arguments.values));
      const bool is_changed = !*last || !AreEqual(**last, now);
      *last = now;
      return Value(is_changed);
    });
  }

  const Statement& loop_;
  ScopePtr around_;
  std::vector<Value> items_;
  int depth_;
  size_t round_ = 0;
  std::shared_ptr<std::optional<Value>> last_ = std::make_shared<std::optional<Value>>();
};

class Macro final : public Object {
 public:
  Macro(const MacroSyntax& syntax, ScopePtr around) : syntax_(syntax), around_(std::move(around)) {}

  std::string_view type_name() const override { return "Macro"; }
  bool is_callable() const override { return true; }
  std::optional<Value> Attribute(std::string_view name) const override {
    if (name == "name") return Value(syntax_.name);
    return std::nullopt;
  }
  Value Call(Interpreter& interpreter, Arguments& arguments) override {
    return interpreter.CallMacro(syntax_, around_, arguments);
  }

 private:
  const MacroSyntax& syntax_;
  ScopePtr around_;
};

}  // namespace moestro::jinja
