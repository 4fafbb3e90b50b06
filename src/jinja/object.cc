// SPDX-License-Identifier: MIT
#include "jinja/object.h"

#include <algorithm>
#include <ctime>
#include <iomanip>
#include <memory>
#include <sstream>
#include <utility>

#include "jinja/failure.h"
#include "jinja/interpreter.h"

namespace moestro::jinja {

std::optional<Value> ArgumentReader::TakeIfGiven(std::string_view name) {
  const auto named =
      std::ranges::find(arguments_.named, name, &std::pair<std::string, Value>::first);
  const bool is_named = named != arguments_.named.end();
  if (next_ < arguments_.values.size()) {
    if (is_named) Raise("{}() got two values for '{}'", function_, name);
    return arguments_.values[next_++];
  }
  if (!is_named) return std::nullopt;
  ++taken_names_;
  return named->second;
}

Value ArgumentReader::Take(std::string_view name) {
  if (auto value = TakeIfGiven(name)) return *std::move(value);
  Raise("{}() is missing its argument '{}'", function_, name);
}

Value ArgumentReader::Take(std::string_view name, Value otherwise) {
  if (auto value = TakeIfGiven(name)) return *std::move(value);
  return otherwise;
}

void ArgumentReader::ExpectEnd() const {
  if (next_ < arguments_.values.size()) {
    Raise("{}() takes not more than {} argument(s)", function_, next_);
  }
  if (taken_names_ < arguments_.named.size()) {
    Raise("{}() got an argument that it does not have", function_);
  }
}

std::optional<Value> Object::Attribute(std::string_view /*name*/) const { return std::nullopt; }

Value Object::Call(Interpreter& /*interpreter*/, Arguments& /*arguments*/) {
  Raise("'{}' object is not callable", type_name());
}

Value MakeFunction(Function::Body body) {
  return Value(std::static_pointer_cast<Object>(std::make_shared<Function>(std::move(body))));
}

std::optional<Value> Namespace::Attribute(std::string_view name) const {
  const Value* value = members_.Find(name);
  if (value == nullptr) return std::nullopt;
  return *value;
}

// Functions for every template: Jinja's own, and those that transformers adds.

namespace {

Value Range(Interpreter& /*interpreter*/, Arguments& arguments) {
  constexpr int64_t kMostNumbers = 100'000;  // limit of Jinja's sandbox
  if (!arguments.named.empty()) Raise("range() takes no keyword arguments");
  const std::vector<Value>& given = arguments.values;
  if (given.empty() || given.size() > 3) Raise("range() takes 1 to 3 numbers");
  const auto number = [&given](size_t i) { return WholeOf(given[i], "a number of range()"); };
  const int64_t begin = given.size() > 1 ? number(0) : 0;
  const int64_t end = number(given.size() > 1 ? 1 : 0);
  const int64_t step = given.size() > 2 ? number(2) : 1;
  if (step == 0) Raise("range() arg 3 must not be zero");
  std::vector<Value> numbers;
  for (int64_t at = begin; step > 0 ? at < end : at > end;) {
    if (std::cmp_equal(numbers.size(), kMostNumbers)) {
      Raise("range() makes not more than {} numbers", kMostNumbers);
    }
    numbers.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return Value::MakeList(std::move(numbers), List::Form::kRange);
}

// Adds members from dicts, pairs and keywords, for dict() and namespace().
void AddMembers(Dict& dict, const Arguments& arguments) {
  if (arguments.values.size() > 1) Raise("dict() takes one value besides its keywords");
  for (const Value& given : arguments.values) {
    if (given.is_dict()) {
      for (const auto& [key, value] : given.dict().members()) dict.Set(key, value);
      continue;
    }
    if (given.is_undefined()) Raise("{}", given.why_undefined());
    for (const Value& pair : ItemsOf(given)) {
      const std::vector<Value> parts = ItemsOf(pair);
      if (parts.size() != 2) Raise("dict() takes pairs of a key and a value");
      dict.Set(parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) dict.Set(name, value);
}

Value MakeDictOf(Interpreter& /*interpreter*/, Arguments& arguments) {
  Value dict = Value::MakeDict();
  AddMembers(dict.dict(), arguments);
  return dict;
}

Value MakeNamespace(Interpreter& /*interpreter*/, Arguments& arguments) {
  auto made = std::make_shared<Namespace>();
  AddMembers(made->members(), arguments);
  return Value(std::static_pointer_cast<Object>(std::move(made)));
}

Value RaiseException(Interpreter& /*interpreter*/, Arguments& arguments) {
  ArgumentReader reader("raise_exception", arguments);
  const std::string words = TextOf(reader.Take("message", Value("")));
  throw Failure(Failure::Kind::kRefusal, words);
}

Value FormatNow(Interpreter& interpreter, Arguments& arguments) {
  ArgumentReader reader("strftime_now", arguments);
  const std::string form = TextOf(reader.Take("format"));
  reader.ExpectEnd();
  constexpr size_t kLongest = 200;
  if (form.empty()) return Value("");
  if (form.size() > kLongest) Raise("a time's format of more than {} bytes", kLongest);
  const std::tm now = interpreter.Now();
  std::ostringstream text;
  text << std::put_time(&now, form.c_str());
  return Value(std::move(text).str());
}

// cycler(1, 2) gives its values in turn.
class Cycler final : public Object {
 public:
  explicit Cycler(std::vector<Value> values) : values_(std::move(values)) {}
  std::string_view type_name() const override { return "Cycler"; }
  std::optional<Value> Attribute(std::string_view name) const override {
    if (name == "current") return values_[*place_];
    if (name == "reset") {
      return MakeFunction([place = place_](Interpreter&, Arguments&) {
        *place = 0;
        return Value::None();
      });
    }
    if (name != "next") return std::nullopt;
    return MakeFunction([place = place_, values = values_](Interpreter&, Arguments&) {
      return values[std::exchange(*place, (*place + 1) % values.size())];
    });
  }
  void Unload(std::vector<Value>& to) override {
    for (Value& value : values_) to.push_back(std::move(value));
    values_.clear();
  }

 private:
  std::vector<Value> values_;
  std::shared_ptr<size_t> place_ = std::make_shared<size_t>(0);
};

Value MakeCycler(Interpreter& /*interpreter*/, Arguments& arguments) {
  if (arguments.values.empty()) Raise("cycler() without values");
  return Value(
      std::static_pointer_cast<Object>(std::make_shared<Cycler>(std::move(arguments.values))));
}

// joiner(", ") gives nothing the first time, then its text.
Value MakeJoiner(Interpreter& /*interpreter*/, Arguments& arguments) {
  ArgumentReader reader("joiner", arguments);
  const Value between = reader.Take("sep", Value(", "));
  reader.ExpectEnd();
  return MakeFunction([between, is_first = std::make_shared<bool>(true)](Interpreter&, Arguments&) {
    return std::exchange(*is_first, false) ? Value("") : between;
  });
}

}  // namespace

void AddGlobals(Scope& scope) {
  scope.Set("range", MakeFunction(Range));
  scope.Set("dict", MakeFunction(MakeDictOf));
  scope.Set("namespace", MakeFunction(MakeNamespace));
  scope.Set("raise_exception", MakeFunction(RaiseException));
  scope.Set("strftime_now", MakeFunction(FormatNow));
  scope.Set("cycler", MakeFunction(MakeCycler));
  scope.Set("joiner", MakeFunction(MakeJoiner));
}

}  // namespace moestro::jinja
