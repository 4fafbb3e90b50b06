// SPDX-License-Identifier: MIT
// Values of a template, with Python's meaning of true, equal, smaller, and of a value's text.
// Containers are shared by all values that hold them, as Python's are, and may hold themselves.
//
// Thread rule: values that share a container belong to one thread.
// Failure: functions throw Failure (failure.h) where Python raises.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace moestro::jinja {

struct List;
class Dict;
class Object;

// The largest text that an operation makes, in bytes.
inline constexpr size_t kMostTextBytes = size_t{64} << 20U;

// A text is UTF-8. An escaped one is not escaped again by the filter `escape`.
struct Text {
  std::string bytes;
  bool is_escaped = false;
};

enum class ListForm : uint8_t {
  kList,
  kTuple,
  kGroup,  // a tuple of a grouper and a list, with names for both parts
  kRange,  // a list that prints as a range
  kLazy,   // a generator: always true, without length, empty after a loop over it
  // Views of a dict, whose items no index finds.
  kKeys,
  kValues,
  kItems,
};

class Value {
 public:
  enum class Kind : uint8_t {
    kUndefined,
    kNone,
    kBool,
    kInt,
    kBigInt,  // a whole number beyond 64 bits, kept as digits
    kFloat,
    kText,
    kList,
    kDict,
    kObject,
  };

  Value() = default;  // undefined
  // An undefined whose use fails with `why`.
  static Value Undefined(std::string why);
  static Value None();
  static Value BigInt(std::string digits);
  static Value EscapedText(std::string bytes);
  static Value MakeList(std::vector<Value> items = {}, ListForm form = ListForm::kList);
  static Value Tuple(std::vector<Value> items) {
    return MakeList(std::move(items), ListForm::kTuple);
  }
  static Value Lazy(std::vector<Value> items) {
    return MakeList(std::move(items), ListForm::kLazy);
  }
  static Value MakeDict();
  explicit Value(bool value) : held_(value) {}
  explicit Value(int64_t value) : held_(value) {}
  explicit Value(double value) : held_(value) {}
  explicit Value(std::string bytes);
  explicit Value(std::string_view bytes) : Value(std::string(bytes)) {}
  explicit Value(const char* bytes) : Value(std::string(bytes)) {}
  explicit Value(std::shared_ptr<Dict> dict) : held_(std::move(dict)) {}
  explicit Value(std::shared_ptr<Object> object) : held_(std::move(object)) {}

  Kind kind() const { return static_cast<Kind>(held_.index()); }
  bool is_undefined() const { return kind() == Kind::kUndefined; }
  bool is_none() const { return kind() == Kind::kNone; }
  bool is_text() const { return kind() == Kind::kText; }
  bool is_list() const { return kind() == Kind::kList; }
  bool is_dict() const { return kind() == Kind::kDict; }
  bool is_object() const { return kind() == Kind::kObject; }
  bool is_lazy() const;
  bool is_tuple() const;
  bool has_places() const;  // a list that an index finds items of: no generator, no view
  bool is_number() const;   // a bool is one, as in Python

  // REQUIRES: the value is of that kind.
  bool boolean() const { return std::get<bool>(held_); }
  int64_t integer() const { return std::get<int64_t>(held_); }
  double real() const { return std::get<double>(held_); }
  const std::string& digits() const;
  const std::string& text() const;
  bool is_escaped() const;  // false if the value is no text
  List& list() const { return *std::get<std::shared_ptr<List>>(held_); }
  Dict& dict() const { return *std::get<std::shared_ptr<Dict>>(held_); }
  Object& object() const { return *std::get<std::shared_ptr<Object>>(held_); }
  std::shared_ptr<Object> shared_object() const { return std::get<std::shared_ptr<Object>>(held_); }
  std::string why_undefined() const;

  // Moves a container's values to `to` if no other value shares the container.
  void Unload(std::vector<Value>& to);
  // Like Unload(), for a shared container, too.
  void UnloadShared(std::vector<Value>& to);
  bool is_container() const { return is_list() || is_dict() || is_object(); }
  // True for the same container, object or constant.
  static bool AreSame(const Value& a, const Value& b);

 private:
  struct Missing {
    std::shared_ptr<const std::string> why;
  };
  struct Nothing {};
  struct Digits {
    std::shared_ptr<const std::string> digits;
  };
  // In the order of Kind.
  std::variant<Missing, Nothing, bool, int64_t, Digits, double, std::shared_ptr<const Text>,
               std::shared_ptr<List>, std::shared_ptr<Dict>, std::shared_ptr<Object>>
      held_;
};

struct List {
  using Form = ListForm;
  List() = default;
  List(std::vector<Value> values, Form shape) : items(std::move(values)), form(shape) {}
  List(const List&) = delete;
  List& operator=(const List&) = delete;
  ~List();  // takes no stack for values within values

  std::vector<Value> items;
  Form form = Form::kList;
  bool is_noted = false;  // Interpreter::NoteChange()
};

// A JSON object as a dict: keys in the order in which they came.
class Dict {
 public:
  Dict() = default;
  Dict(const Dict&) = delete;
  Dict& operator=(const Dict&) = delete;
  ~Dict();  // takes no stack for values within values

  // nullptr: no such key. Throws for a key that Python cannot hash.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  void Set(const Value& key, Value value);
  void Set(std::string_view key, Value value);
  // nullopt: no such key.
  std::optional<Value> Take(const Value& key);
  void Clear();
  // Gives all keys and values to `to`.
  void Unload(std::vector<Value>& to);
  size_t size() const { return members_.size(); }
  const std::vector<std::pair<Value, Value>>& members() const { return members_; }

  bool is_noted = false;  // Interpreter::NoteChange()

 private:
  std::optional<size_t> PlaceOf(const Value& key) const;
  void BuildIndex() const;

  std::vector<std::pair<Value, Value>> members_;
  // Places by the hashes of keys; empty while the keys are few.
  mutable std::unordered_multimap<size_t, size_t> index_;
};

// Frees values level by level: a destructor that calls itself would need stack for each.
void FreeAll(std::vector<Value> doomed);

// Python's bool().
bool IsTrue(const Value& value);
// Python's ==.
bool AreEqual(const Value& a, const Value& b);
// Python's <; throws for kinds without an order.
bool IsLess(const Value& a, const Value& b);
// Throws for a list or an object.
size_t HashOf(const Value& value);

// Python's str() and repr().
std::string TextOf(const Value& value);
std::string ReprOf(const Value& value);
std::string TextOfReal(double value);
// A value's str(), with HTML's characters escaped unless the value is an escaped text.
std::string EscapedTextOf(const Value& value);
// A text that is escaped if `origin` is.
Value WithEscapesOf(const Value& origin, std::string text);
// Python's pprint.pformat().
std::string PrettyTextOf(const Value& value);

// "str", "int", "list"...
std::string_view TypeName(const Value& value);

// The values that a loop goes through: characters of a text, items of a list, keys of an object;
// none for undefined. A lazy list is empty afterwards. Throws for values without a loop.
std::vector<Value> ItemsOf(const Value& value);
// True for a value that a template can loop over: undefined, text, list or dict. A lazy list stays
// as it is.
bool IsIterable(const Value& value);
// Python's len().
size_t LengthOf(const Value& value);
// Throws where values are nested deeper than comparisons and texts go; a list may hold itself.
void CheckValueLevel(int level);

// The number as a double; REQUIRES: is_number().
double RealOf(const Value& number);
// Python's int() of a text in a base of 2 to 36, or of 0, where a prefix names the base, and
// float(). nullopt: the text is no such number. Throws for more digits than Python prints.
std::optional<Value> WholeOfText(std::string_view text, int base);
std::optional<double> RealOfText(std::string_view text);
// Python's int() of a float; throws for infinity and for no number.
Value WholePartOf(double value);
// A whole number in an int or a bool, if it fits; throws otherwise. `what` names the value.
int64_t WholeOf(const Value& value, std::string_view what);
// None for a negative number; throws for more than a text holds.
std::string BlanksOf(int64_t n);

}  // namespace moestro::jinja
