// SPDX-License-Identifier: MIT
#include "jinja/template.h"

#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "jinja/failure.h"
#include "jinja/interpreter.h"
#include "jinja/syntax.h"

namespace moestro::jinja {
namespace {

std::unexpected<Error> ErrorOf(const Failure& failure) {
  if (failure.kind() == Failure::Kind::kRefusal) {
    return moestro::Fail(Errc::kInvalidRequest, "{}", failure.words());
  }
  if (failure.line() == 0) return moestro::Fail(Errc::kUnsupported, "{}", failure.words());
  return moestro::Fail(Errc::kUnsupported, "{} (line {})", failure.words(), failure.line());
}

// The words for an exception that is no Failure: memory.
std::string WordsOf(const std::exception& error) {
  const bool is_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
                         dynamic_cast<const std::length_error*>(&error) != nullptr;
  return is_memory ? "the template needs more memory than it may take" : error.what();
}

std::tm LocalTime() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

}  // namespace

struct Template::Impl {
  Body body;
};

Template::Template(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Result<Template> Template::Parse(std::string_view text) {
  try {
    auto impl = std::make_unique<Impl>();
    impl->body = ParseTemplate(text);
    return Template(std::move(impl));
  } catch (const Failure& failure) {
    return ErrorOf(failure);
  } catch (const std::exception& error) {
    return moestro::Fail(Errc::kUnsupported, "{}", WordsOf(error));
  }
}

Status Template::Render(const Value& variables, const std::function<void(std::string_view)>& write,
                        const RenderOptions& options) const {
  try {
    Interpreter interpreter({.write = write,
                             .now = options.now ? options.now : LocalTime,
                             .most_steps = options.most_steps});
    interpreter.Run(impl_->body, variables.dict());
    return {};
  } catch (const Failure& failure) {
    return ErrorOf(failure);
  } catch (const std::exception& error) {
    return moestro::Fail(Errc::kUnsupported, "{}", WordsOf(error));
  }
}

}  // namespace moestro::jinja
