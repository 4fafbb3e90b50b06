// SPDX-License-Identifier: MIT
#include "chat/template.h"

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

#include "base/json.h"
#include "chat/template_guard.h"
#include "chat/template_values.h"

namespace moestro {
namespace {

using JsonValue = nlohmann::ordered_json;
using minja::ArgumentsValue;
using minja::Context;
using minja::Value;

// What one rendering may use. A conversation of 128 k tokens takes some 20 MiB of work.
constexpr size_t kMaxWork = size_t{256} << 20U;  // bytes of template run and of values kept
constexpr size_t kMaxValueBytes = size_t{16} << 20U;
constexpr size_t kMaxStackBytes = size_t{2} << 20U;
constexpr size_t kMaxValueDepth = 2 * Json::kMaxDepth;  // the library prints by recursion
constexpr int64_t kMaxRange = 100'000;
constexpr int64_t kMaxIndent = 64;
constexpr size_t kTickWork = 256;  // of a body, whatever its size
constexpr size_t kItemWork = 16;
constexpr size_t kCopyWork = 128;  // of each value within one that is copied

// Counts what a rendering uses, and ends the library's circles of contexts and macros, which would
// never be freed.
class Rendering {
 public:
  explicit Rendering(const WorkLimit& limit) : limit_(limit), stack_(StackNow()) {}
  Rendering(const Rendering&) = delete;
  Rendering& operator=(const Rendering&) = delete;
  ~Rendering() {
    for (const std::weak_ptr<Context>& seen : contexts_) {
      if (const std::shared_ptr<Context> context = seen.lock()) Clear(*context);
    }
  }

  void Watch(const std::shared_ptr<Context>& context) {
    if (last_ == context.get()) return;
    last_ = context.get();
    contexts_.emplace_back(context);
  }
  void Tick(const std::shared_ptr<Context>& context, size_t body_bytes) {
    Watch(context);
    if (!limit_.Look()) throw std::runtime_error("there is no time left");
    Use(kTickWork + body_bytes);
    for (const Value& key : context->keys()) Keep(context->get(key));
    const uintptr_t now = StackNow();
    if (std::max(now, stack_) - std::min(now, stack_) > kMaxStackBytes) {
      throw std::runtime_error("it calls itself too deeply");
    }
  }
  void Keep(const Value& value) {
    const size_t bytes = value.is_string()                       ? value.size()
                         : value.is_array() || value.is_object() ? value.size() * kItemWork
                                                                 : 0;
    if (bytes > kMaxValueBytes) throw std::runtime_error("it makes too long a text");
    Use(bytes);
  }
  // A copy of all of it. So values are trees, of which the library makes an end.
  Value Own(const Value& value, size_t depth = 0) {
    if (depth > kMaxValueDepth) throw std::runtime_error("it nests values too deeply");
    if (value.is_callable()) throw std::runtime_error("it stores a function");
    Keep(value);
    Use(kCopyWork);
    if (value.is_array()) {
      Value copy = Value::array();
      for (size_t i = 0; i < value.size(); ++i) copy.push_back(Own(value.at(i), depth + 1));
      return copy;
    }
    if (!value.is_object()) return value;
    Value copy = Value::object();
    value.for_each([&](const Value& key) { copy.set(key, Own(value.at(key), depth + 1)); });
    return copy;
  }
  [[noreturn]] void Refuse(std::string words) {
    refusal_ = std::move(words);
    throw std::runtime_error("refused");
  }
  const std::optional<std::string>& refusal() const { return refusal_; }

 private:
  // Not the address of a variable: sanitizers move those to the heap.
  static uintptr_t StackNow() {
    return reinterpret_cast<uintptr_t>(__builtin_frame_address(0));  // NOLINT
  }
  static void Clear(Context& context) {
    for (const Value& key : context.keys()) context.set(key, Value());
  }
  void Use(size_t work) {
    work_ += work;
    if (!limit_.Spend(work)) throw std::runtime_error("there is no time left");
    if (work_ > kMaxWork) throw std::runtime_error("it does not come to an end");
  }

  const WorkLimit& limit_;
  uintptr_t stack_;
  size_t work_ = 0;
  Context* last_ = nullptr;
  std::vector<std::weak_ptr<Context>> contexts_;
  std::optional<std::string> refusal_;
};

int64_t WholeNumber(const Value& value) {
  if (!value.is_number_integer()) throw std::runtime_error("a whole number is needed");
  return value.get<int64_t>();
}

const Value& First(const ArgumentsValue& arguments) {
  if (arguments.args.empty()) throw std::runtime_error("a function without its argument");
  return arguments.args.front();
}

Value Range(const ArgumentsValue& arguments) {
  int64_t begin = 0;
  int64_t step = 1;
  int64_t end = WholeNumber(First(arguments));
  if (arguments.args.size() > 1) begin = std::exchange(end, WholeNumber(arguments.args[1]));
  if (arguments.args.size() > 2) step = WholeNumber(arguments.args[2]);
  const auto is_small = [](int64_t n) { return n >= -kMaxRange && n <= kMaxRange; };
  if (!is_small(begin) || !is_small(end) || !is_small(step) || step == 0) {
    throw std::runtime_error("range() of too many");
  }
  Value numbers = Value::array();
  for (int64_t n = begin; step > 0 ? n < end : n > end; n += step) numbers.push_back(Value(n));
  return numbers;
}

// Python's writers of JSON have more arguments than the layout; none of them matters here.
Value ToJson(ArgumentsValue& arguments) {
  const Value indent = arguments.get_named("indent");
  const int64_t width = indent.is_null() ? -1 : WholeNumber(indent);
  if (width > kMaxIndent) throw std::runtime_error("too wide an indent");
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

using TemplateFunction = std::function<Value(const std::shared_ptr<Context>&, ArgumentsValue&)>;

void SetFunction(Context& context, std::string_view name, const TemplateFunction& function) {
  context.set(std::string(name), Value::callable(function));
}

void SetFunctions(Context& context, Rendering& rendering) {
  using Scope = std::shared_ptr<Context>;
  SetFunction(context, kTickFunction, [&rendering](const Scope& scope, ArgumentsValue& arguments) {
    rendering.Tick(scope, static_cast<size_t>(WholeNumber(First(arguments))));
    return Value();
  });
  SetFunction(context, kKeepFunction, [&rendering](const Scope&, ArgumentsValue& arguments) {
    rendering.Keep(First(arguments));
    return First(arguments);
  });
  SetFunction(context, kOwnFunction, [&rendering](const Scope&, ArgumentsValue& arguments) {
    return rendering.Own(First(arguments));
  });
  SetFunction(context, "namespace", [&rendering](const Scope&, ArgumentsValue& arguments) {
    Value made = Value::object();
    for (const auto& [name, value] : arguments.kwargs) made.set(name, rendering.Own(value));
    return made;
  });
  SetFunction(context, "raise_exception",
              [&rendering](const Scope&, ArgumentsValue& arguments) -> Value {
                rendering.Refuse(First(arguments).to_str());
              });
  SetFunction(context, "range", [](const Scope&, ArgumentsValue& a) { return Range(a); });
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
  const Value indent = context.get(Value("indent"));
  SetFunction(context, "indent", [indent](const Scope& scope, ArgumentsValue& arguments) {
    if (arguments.args.size() > 1 && WholeNumber(arguments.args[1]) > kMaxIndent) {
      throw std::runtime_error("too wide an indent");
    }
    return indent.call(scope, arguments);
  });
}

// The library appends the place of a mistake, once for each level.
std::string FirstWords(std::string_view text) {
  return std::string(text.substr(0, std::min(text.find(" at row "), text.find('\n'))));
}

}  // namespace

struct ChatTemplate::Impl {
  std::shared_ptr<minja::TemplateNode> root;
  std::string bos;
  std::string eos;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::Parse(std::string_view text, std::string_view bos,
                                         std::string_view eos) {
  std::string unix_text(text);
  for (size_t at = 0; (at = unix_text.find("\r\n", at)) != std::string::npos;)
    unix_text.erase(at, 1);
  TRY(const std::string guarded, GuardTemplate(unix_text));
  try {
    auto root = minja::Parser::parse(
        guarded, {.trim_blocks = true, .lstrip_blocks = true, .keep_trailing_newline = false});
    return ChatTemplate(
        std::make_unique<Impl>(std::move(root), std::string(bos), std::string(eos)));
  } catch (const std::exception& error) {
    return Fail(Errc::kUnsupported, "{}", FirstWords(error.what()));
  }
}

Result<std::string> ChatTemplate::Render(const TemplateInput& input, const WorkLimit& limit) const {
  Rendering rendering(limit);
  try {
    TRY(Value variables, TemplateValues(input, impl_->bos, impl_->eos, limit));
    const std::shared_ptr<Context> context = Context::make(std::move(variables));
    rendering.Watch(context);
    SetFunctions(*context, rendering);
    return impl_->root->render(context);
  } catch (const std::exception& error) {
    TRY_STATUS(limit.status());
    if (rendering.refusal()) {
      return Fail(Errc::kInvalidRequest, "the model's chat template refuses the conversation: {}",
                  *rendering.refusal());
    }
    return Fail(Errc::kUnsupported, "the model's chat template fails: {}",
                FirstWords(error.what()));
  }
}

}  // namespace moestro
