// SPDX-License-Identifier: MIT
#include "chat/template.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <mutex>
#include <optional>
#include <utility>

#include "chat/template_message.h"
#include "chat/template_process.h"
#include "sandbox/child_starter.h"
#include "sandbox/trial.h"

namespace moestro {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kSmallInput = size_t{256} << 10U;
constexpr size_t kMostText = size_t{40} << 20U;  // the largest body, and a template's own words
constexpr double kMostSeconds = 10.0;            // processor time, even if the limit leaves more
constexpr double kClockStep = 0.001;
constexpr milliseconds kLookEvery{50};         // whether all work shall end
constexpr milliseconds kLongestStart{15'000};  // of a process on a busy machine
constexpr const char* kDoesNotSurvive = "the process that runs it does not survive it";
// Wall-clock seconds allowed for each second of processor time.
constexpr int kBusyMachine = 6;

std::unexpected<Error> Failed(std::string_view why) {
  return Fail(Errc::kUnsupported, "the model's chat template fails: {}", why);
}

// The messages of a child about one rendering.
struct Said {
  std::string text;
  std::optional<Error> error;
  bool is_done = false;
  bool has_ended = false;  // the child
  Trial::Outcome outcome = Trial::Outcome::kNotRun;
  bool is_out_of_memory = false;
  std::optional<double> processor_seconds;  // of all the child's renderings

  void Add(std::string_view message) {
    if (message.empty()) return;
    const auto mark = static_cast<RenderMark>(message.front());
    message.remove_prefix(1);
    if (mark == RenderMark::kText) {
      text += message;
    } else if (mark == RenderMark::kError && !message.empty()) {
      error = Error{.code = static_cast<Errc>(message.front()),
                    .message = std::string(message.substr(1))};
    } else if (mark == RenderMark::kDone) {
      is_done = true;
      AddTime(message);
    } else if (mark == RenderMark::kEnd && message.size() >= 2) {
      has_ended = true;
      outcome = static_cast<Trial::Outcome>(message[0]);
      is_out_of_memory = message[1] == '1';
      AddTime(message.substr(2));
    }
  }

 private:
  void AddTime(std::string_view bytes) {
    if (bytes.size() == sizeof(uint32_t)) processor_seconds = TakeNumber(bytes) / 1000.0;
  }
};

// The time until which a child is waited for: its processor time, stretched for a busy machine.
steady_clock::time_point EndOf(double processor_seconds) {
  return steady_clock::now() + kLongestStart +
         milliseconds(std::lround(processor_seconds * 1000) * kBusyMachine);
}

// A child that renders, from its beginning on.
class Child {
 public:
  explicit Child(MessageSocket socket) : socket_(std::move(socket)) {}

  // nullopt: the child is gone, or stands still.
  Result<std::optional<std::string>> Next(steady_clock::time_point end, const WorkLimit& limit) {
    while (!socket_.Await(kLookEvery)) {
      TRY_STATUS(limit.Look());
      if (steady_clock::now() > end) return std::nullopt;
    }
    return socket_.Read(end);
  }
  // False: the child is gone.
  Result<bool> Begins(double seconds, steady_clock::time_point end, const WorkLimit& limit) {
    std::string request;
    AppendNumber(request, static_cast<uint32_t>(std::ceil(seconds * 1000)) + 1);
    if (!socket_.Write(request, end)) return false;
    TRY(const auto answer, Next(end, limit));
    return answer && answer->starts_with(static_cast<char>(RenderMark::kBegins));
  }
  Status Send(const TemplateInput& input, steady_clock::time_point end, const WorkLimit& limit) {
    return WriteInput(
        input,
        [&](std::string_view part) -> Status {
          TRY_STATUS(limit.Spend(part.size()));
          // A failed write shows in Listen(), with the child's own reason.
          socket_.Write(part, end);
          return {};
        },
        [&] { return limit.Look(); });
  }
  Result<Said> Listen(steady_clock::time_point end, const WorkLimit& limit) {
    Said said;
    while (!said.is_done && !said.has_ended) {
      TRY(const auto message, Next(end, limit));
      if (!message) break;
      said.Add(*message);
      if (said.text.size() > kMostText) return Failed("it makes too long a text");
    }
    return said;
  }
  // Processor seconds since the last call.
  double TakeSeconds(const Said& said) {
    const double all = std::max(said.processor_seconds.value_or(0.0), seconds_);
    return all - std::exchange(seconds_, all);
  }

 private:
  MessageSocket socket_;
  double seconds_ = 0.0;  // processor time so far
};

}  // namespace

// Renderings of one size, one at a time.
class ChatTemplate::Lane {
 public:
  explicit Lane(bool is_large) : is_large_(is_large) {}

  Result<std::string> Render(ChildStarter& starter, const TemplateInput& input,
                             const WorkLimit& limit) {
    const std::scoped_lock lock(mutex_);
    // child_ stays empty if the rendering ends early: its child is in the middle of something then.
    std::optional<Child> child = std::exchange(child_, std::nullopt);
    const double seconds = std::min(limit.seconds_left(), kMostSeconds);
    const auto end = EndOf(seconds);
    TRY_STATUS(Begin(starter, child, seconds, end, limit));
    if (!child) return Failed(kDoesNotSurvive);
    TRY_STATUS(child->Send(input, end, limit));
    TRY(Said said, child->Listen(end, limit));
    double used = child->TakeSeconds(said);
    // The child's timer and its report are two clocks: after a time-out no time may be left.
    if (said.outcome == Trial::Outcome::kTimedOut) used = std::max(used, seconds + kClockStep);
    const Status charged = limit.Charge(used);
    if (said.is_done) child_ = std::move(child);
    TRY_STATUS(charged);
    return TextOf(std::move(said));
  }

 private:
  // Makes `child` ready to render: the present one or a new one. Leaves it empty if every child
  // died.
  Status Begin(ChildStarter& starter, std::optional<Child>& child, double seconds,
               steady_clock::time_point end, const WorkLimit& limit) const {
    constexpr int kTries = 3;  // the child may have died, and the helper
    for (int i = 0; i < kTries; ++i) {
      if (!child) {
        TRY(MessageSocket socket, starter.AwaitAndBegin(is_large_ ? kAskLarge : kAskSmall));
        child.emplace(std::move(socket));
        TRY(const auto begins, child->Next(end, limit));
        if (!begins) {
          child.reset();
          continue;
        }
      }
      TRY(const bool begins, child->Begins(seconds, end, limit));
      if (begins) return {};
      child.reset();
    }
    return {};
  }

  // The rendering's result for the request.
  Result<std::string> TextOf(Said said) const {
    if (said.error) return std::unexpected(*std::move(said.error));
    if (said.is_done) return std::move(said.text);
    if (said.is_out_of_memory) {
      const uint64_t most = (is_large_ ? kLargeRenderMemory : kSmallRenderMemory) >> 20U;
      return Fail(is_large_ ? Errc::kInvalidRequest : Errc::kUnsupported,
                  "the model's chat template fails: it needs more than {} MiB for the conversation",
                  most);
    }
    return Failed(said.outcome == Trial::Outcome::kTimedOut ? "it does not come to an end"
                                                            : kDoesNotSurvive);
  }

  const bool is_large_;
  std::mutex mutex_;
  std::optional<Child> child_;  // waits for the next
};

struct ChatTemplate::Impl {
  std::unique_ptr<ChildStarter> starter;
  Lane small{/*is_large=*/false};
  Lane large{/*is_large=*/true};
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::Parse(std::string_view text, std::string_view bos,
                                         std::string_view eos, const ControlTexts& controls) {
  auto impl = std::make_unique<Impl>();
  TRY(impl->starter, ChildStarter::Start(TemplateWork({.text = std::string(text),
                                                       .bos = std::string(bos),
                                                       .eos = std::string(eos),
                                                       .controls = controls})));
  const auto end = EndOf(std::chrono::duration<double>(kLongestParse).count());
  for (int i = 0; i < 2; ++i) {  // the helper may die of something else
    TRY(MessageSocket socket, impl->starter->Begin(kAskParsed));
    Child child(std::move(socket));
    TRY(const auto begins, child.Next(end, {}));
    if (!begins) continue;
    TRY(Said said, child.Listen(end, {}));
    if (said.error) return std::unexpected(*std::move(said.error));
    if (said.has_ended) return ChatTemplate(std::move(impl));
  }
  return Fail(Errc::kUnsupported, "{}", kDoesNotSurvive);
}

Result<std::string> ChatTemplate::Render(const TemplateInput& input, const WorkLimit& limit) const {
  TRY_STATUS(limit.Look());
  Lane& lane = SizeOf(input) > kSmallInput ? impl_->large : impl_->small;
  return lane.Render(*impl_->starter, input, limit);
}

ChildStarter& ChatTemplate::starter() const { return *impl_->starter; }

int ChatTemplate::spawner_id() const { return impl_->starter->spawner_id(); }

int ChatTemplate::helper_id() const { return impl_->starter->helper_id(); }

namespace {

struct Known {
  std::string_view name;
  std::string_view mark;  // a text that templates of this kind contain
  std::string_view text;
};

// No template here writes tools: those are described in the system's words (plain_turns.h). A mark
// that several kinds have comes after marks that one has.
constexpr std::array kTemplates = {
    Known{"cohere", "<|START_OF_TURN_TOKEN|>", R"({{- bos_token }}
{%- set names = {'user': '<|USER_TOKEN|>', 'assistant': '<|CHATBOT_TOKEN|>'} %}
{%- for m in messages %}
    {{- '<|START_OF_TURN_TOKEN|>' + names.get(m.role, '<|SYSTEM_TOKEN|>') }}
    {{- m.content + '<|END_OF_TURN_TOKEN|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{%- endif %})"},
    Known{"deepseek", "<｜User｜>", R"({{- bos_token }}
{%- for m in messages %}
    {%- if m.role == 'user' %}{{- '<｜User｜>' + m.content }}
    {%- elif m.role == 'assistant' %}{{- '<｜Assistant｜>' + m.content + eos_token }}
    {%- else %}{{- m.content }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<｜Assistant｜>' }}{%- endif %})"},
    Known{"gemma4", "<|turn>", R"({{- bos_token }}
{%- for m in messages %}
    {{- '<|turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}
    {{- (m.content | trim) + '<turn|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|turn>model\n' }}{%- endif %})"},
    Known{"glm4", "[gMASK]<sop>", R"([gMASK]<sop>
{%- for m in messages %}{{- '<|' + m.role + '|>\n' + m.content }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %})"},
    Known{"gpt-oss", "<|channel|>", R"(
{%- for m in messages %}
    {{- '<|start|>' + m.role + ('<|channel|>final' if m.role == 'assistant' else '') }}
    {{- '<|message|>' + m.content + '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %})"},
    Known{"granite", "<|start_of_role|>", R"(
{%- for m in messages %}
    {{- '<|start_of_role|>' + m.role + '<|end_of_role|>' + m.content + '<|end_of_text|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_of_role|>assistant<|end_of_role|>' }}
{%- endif %})"},
    Known{"kimi", "<|im_user|>", R"(
{%- for m in messages %}
    {{- '<|im_' + m.role + '|>' + m.role + '<|im_middle|>' + m.content + '<|im_end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_assistant|>assistant<|im_middle|>' }}{%- endif %})"},
    Known{"minimax", "]~b]", R"(]~!b[
{%- for m in messages %}
    {{- ']~b]' + ('ai' if m.role == 'assistant' else m.role) + '\n' + m.content + '[e~[\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- ']~b]ai\n' }}{%- endif %})"},
    Known{"chatml", "<|im_start|>", R"(
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %})"},
    Known{"gemma", "<start_of_turn>", R"({{- bos_token }}
{%- for m in messages %}
    {%- if m.role == 'system' %}{{ raise_exception('There is no system') }}{% endif %}
    {%- set role = 'model' if m.role == 'assistant' else 'user' %}
    {{- '<start_of_turn>' + role + '\n' + (m.content | trim) + '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\n' }}{%- endif %})"},
    Known{"llama3", "<|start_header_id|>", R"({{- bos_token }}
{%- for m in messages %}
    {{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}
    {{- (m.content | trim) + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %})"},
    Known{"phi", "<|end|>", R"(
{%- for m in messages %}{{- '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>\n' }}{%- endif %})"},
    Known{"mistral", "[INST]", R"({{- bos_token }}
{%- for m in messages %}
    {%- if m.role == 'user' %}{{- '[INST] ' + m.content + ' [/INST]' }}
    {%- elif m.role == 'assistant' %}{{- ' ' + m.content + eos_token }}
    {%- else %}{{ raise_exception('There is no system') }}
    {%- endif %}
{%- endfor %})"},
};

}  // namespace

std::optional<std::string_view> KnownTemplate(std::string_view name) {
  const auto found = std::ranges::find(kTemplates, name, &Known::name);
  if (found == kTemplates.end()) return std::nullopt;
  return found->text;
}

std::optional<NamedTemplate> TemplateOfMarks(std::string_view template_text) {
  const auto found = std::ranges::find_if(kTemplates, [template_text](const Known& known) {
    return template_text.contains(known.mark);
  });
  if (found == kTemplates.end()) return std::nullopt;
  return NamedTemplate{.name = found->name, .text = found->text};
}

std::string KnownTemplateNames() {
  std::string names;
  for (const Known& known : kTemplates) {
    if (!names.empty()) names += ", ";
    names += known.name;
  }
  return names;
}

}  // namespace moestro
