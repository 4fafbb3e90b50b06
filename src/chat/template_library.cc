// SPDX-License-Identifier: MIT
#include "chat/template_library.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <ctime>
#include <exception>
#include <functional>
#include <iomanip>
#include <minja/minja.hpp>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "chat/template_spelling.h"
#include "chat/template_values.h"

namespace moestro {
namespace {

using JsonValue = nlohmann::ordered_json;
using minja::ArgumentsValue;
using minja::Context;
using minja::Value;

int64_t WholeNumber(const Value& value) {
  if (!value.is_number_integer()) throw std::runtime_error("a whole number is needed");
  return value.get<int64_t>();
}

const Value& First(const ArgumentsValue& arguments) {
  if (arguments.args.empty()) throw std::runtime_error("a function without its argument");
  return arguments.args.front();
}

// Python's writers of JSON have more arguments than the layout; none of them matters here.
Value ToJson(ArgumentsValue& arguments) {
  const Value indent = arguments.get_named("indent");
  const int64_t width = indent.is_null() ? -1 : WholeNumber(indent);
  const Value& value = First(arguments);
  if (width >= 0) return value.get<JsonValue>().dump(static_cast<int>(width));
  return value.dump(-1, /*to_json=*/true);
}

Value Now(const ArgumentsValue& arguments) {
  const std::string format = First(arguments).get<std::string>();
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::ostringstream text;
  text << std::put_time(&local, format.c_str());
  return text.str();
}

// The first letter of the text, or of each word, is a capital, all others are small.
Value Capitals(std::string text, bool of_words) {
  bool is_first = true;
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    c = static_cast<char>(is_first ? std::toupper(byte) : std::tolower(byte));
    is_first = of_words && std::isspace(byte) != 0;
  }
  return text;
}

Value Replaced(const ArgumentsValue& arguments) {
  if (arguments.args.size() != 3) throw std::runtime_error("two texts are needed");
  std::string text = arguments.args[0].to_str();
  const std::string from = arguments.args[1].to_str();
  const std::string to = arguments.args[2].to_str();
  if (from.empty()) throw std::runtime_error("a text is needed");
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

Value Reversed(const Value& items) {
  if (!items.is_array()) throw std::runtime_error("a list is needed");
  Value reversed = Value::array();
  for (size_t i = items.size(); i > 0; --i) reversed.push_back(items.at(i - 1));
  return reversed;
}

using TemplateFunction = std::function<Value(const std::shared_ptr<Context>&, ArgumentsValue&)>;

void SetFunction(Context& context, std::string_view name, const TemplateFunction& function) {
  context.set(std::string(name), Value::callable(function));
}

// What models use and the library has not, or writes in another way. raise_exception() leaves its
// words in `refusal`.
void SetFunctions(Context& context, std::optional<std::string>& refusal) {
  using Scope = std::shared_ptr<Context>;
  SetFunction(context, "namespace", [](const Scope&, ArgumentsValue& arguments) {
    Value made = Value::object();
    for (const auto& [name, value] : arguments.kwargs) made.set(name, value);
    return made;
  });
  SetFunction(context, "raise_exception",
              [&refusal](const Scope&, ArgumentsValue& arguments) -> Value {
                refusal = First(arguments).to_str();
                throw std::runtime_error("refused");
              });
  SetFunction(context, "tojson", [](const Scope&, ArgumentsValue& a) { return ToJson(a); });
  SetFunction(context, "strftime_now", [](const Scope&, ArgumentsValue& a) { return Now(a); });
  for (const std::string_view method : {"capitalize", "title"}) {
    SetFunction(context, method, [method](const Scope&, ArgumentsValue& arguments) {
      return Capitals(First(arguments).to_str(), method == "title");
    });
  }
  SetFunction(context, "first", [](const Scope&, ArgumentsValue& arguments) {
    const Value& items = First(arguments);
    return items.is_array() && items.size() > 0 ? items.at(size_t{0}) : Value();
  });
  SetFunction(context, "reverse",
              [](const Scope&, ArgumentsValue& a) { return Reversed(First(a)); });
  SetFunction(context, "replace", [](const Scope&, ArgumentsValue& a) { return Replaced(a); });
}

// A macro holds the context that holds it.
class ContextGuard {
 public:
  explicit ContextGuard(Context& context) : context_(context) {}
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;
  ~ContextGuard() {
    for (const Value& key : context_.keys()) context_.set(key, Value());
  }

 private:
  Context& context_;
};

// The library appends the place of a mistake, once for each level.
std::string FirstWords(std::string_view text) {
  return std::string(text.substr(0, std::min(text.find(" at row "), text.find('\n'))));
}

}  // namespace

struct LibraryTemplate::Impl {
  std::shared_ptr<minja::TemplateNode> root;
  TemplateText given;
};

LibraryTemplate::LibraryTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LibraryTemplate::LibraryTemplate(LibraryTemplate&&) noexcept = default;
LibraryTemplate& LibraryTemplate::operator=(LibraryTemplate&&) noexcept = default;
LibraryTemplate::~LibraryTemplate() = default;

Result<LibraryTemplate> LibraryTemplate::Parse(TemplateText given) {
  try {
    auto root = minja::Parser::parse(
        SpellForLibrary(given.text),
        {.trim_blocks = true, .lstrip_blocks = true, .keep_trailing_newline = false});
    return LibraryTemplate(std::make_unique<Impl>(std::move(root), std::move(given)));
  } catch (const std::exception& error) {
    return Fail(Errc::kUnsupported, "{}", FirstWords(error.what()));
  }
}

Status LibraryTemplate::Render(SentInput input, std::streambuf& out) const {
  std::optional<std::string> refusal;
  try {
    TRY(Value variables, TemplateValues(std::move(input), impl_->given.bos, impl_->given.eos,
                                        impl_->given.controls));
    const std::shared_ptr<Context> context = Context::make(std::move(variables));
    const ContextGuard guard(*context);
    SetFunctions(*context, refusal);
    std::ostringstream stream;
    std::ostream& any_stream = stream;  // a stream of strings hides whose buffer may be changed
    any_stream.rdbuf(&out);
    impl_->root->render(stream, context);
    return {};
  } catch (const std::exception& error) {
    if (refusal) {
      return Fail(Errc::kInvalidRequest, "the model's chat template refuses the conversation: {}",
                  *refusal);
    }
    return Fail(Errc::kUnsupported, "the model's chat template fails: {}",
                FirstWords(error.what()));
  }
}

}  // namespace moestro
