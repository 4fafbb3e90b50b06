// SPDX-License-Identifier: MIT
#include "chat/template_process.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "base/system_limits.h"
#include "chat/template_message.h"
#include "chat/template_values.h"
#include "jinja/template.h"
#include "sandbox/relay.h"
#include "sandbox/trial.h"

namespace moestro {
namespace {

constexpr size_t kTextPart = size_t{64} << 10U;
constexpr uint64_t kParseMemory = kLargeRenderMemory + kSmallRenderMemory;
constexpr int kOutOfMemory = 3;  // an exit code

std::string MessageOf(RenderMark mark, std::string_view words) {
  std::string message(1, static_cast<char>(mark));
  message += words;
  return message;
}

// Sends the parts of a text as messages. Ends the process when a message cannot be sent.
class TextSender {
 public:
  explicit TextSender(MessageSocket& socket) : socket_(socket) { part_.reserve(kTextPart); }
  void Add(std::string_view text) {
    while (!text.empty()) {
      const size_t fits = std::min(text.size(), kTextPart - part_.size());
      part_ += text.substr(0, fits);
      text.remove_prefix(fits);
      if (part_.size() == kTextPart) Flush();
    }
  }
  void Flush() {
    if (part_.empty()) return;
    if (!socket_.Write(MessageOf(RenderMark::kText, part_), std::nullopt)) _exit(EXIT_FAILURE);
    part_.clear();
  }

 private:
  MessageSocket& socket_;
  std::string part_;
};

// A template that is ready to be rendered.
struct ParsedTemplate {
  jinja::Template program;
  TemplateText given;
};

Result<ParsedTemplate> ParseGiven(TemplateText given) {
  TRY(jinja::Template program, jinja::Template::Parse(given.text));
  return ParsedTemplate{.program = std::move(program), .given = std::move(given)};
}

Status RenderTo(TextSender& out, const ParsedTemplate& parsed, SentInput input) {
  TRY(const jinja::Value variables,
      TemplateValues(std::move(input), parsed.given.bos, parsed.given.eos, parsed.given.controls));
  const Status rendered =
      parsed.program.Render(variables, [&out](std::string_view text) { out.Add(text); });
  if (rendered) return {};
  const Error& error = rendered.error();
  const bool refuses = error.code == Errc::kInvalidRequest;
  return Fail(error.code, "the model's chat template {}: {}",
              refuses ? "refuses the conversation" : "fails", error.message);
}

void SendError(MessageSocket& socket, const Error& error) {
  const std::string words = static_cast<char>(error.code) + error.message;
  socket.Write(MessageOf(RenderMark::kError, words), std::nullopt);
}

std::string ProcessorTime(double seconds) {
  std::string bytes;
  AppendNumber(bytes, static_cast<uint32_t>(std::lround(seconds * 1000)));
  return bytes;
}

double ProcessorSecondsNow() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// The process that renders.
class Renderer {
 public:
  Renderer(MessageSocket answers, MessageSocket& owner, const ParsedTemplate& parsed)
      : answers_(std::move(answers)), owner_(owner), parsed_(parsed) {}

  // Renders until the owner closes its side, or until templates have kept too much memory: a list
  // that holds itself is never freed.
  void Run(uint64_t memory) {
    LimitChild(memory);
    // An exception would become an error message.
    std::set_new_handler([] { _exit(kOutOfMemory); });
    const uint64_t most_kept = WritableBytes() + memory / 8;
    while (WritableBytes() < most_kept) {
      const auto request = owner_.Read(std::nullopt);
      if (!request || request->size() != sizeof(uint32_t)) return;
      std::string_view view = *request;
      ProcessorLimit limit(std::chrono::milliseconds(TakeNumber(view)));
      limit.Resume();
      RenderOne();
      limit.Pause();
      ReturnFreedMemory();
      Write(RenderMark::kDone, ProcessorTime(ProcessorSecondsNow()));
    }
  }

 private:
  void Write(RenderMark mark, std::string_view words) {
    if (!answers_.Write(MessageOf(mark, words), std::nullopt)) _exit(EXIT_FAILURE);
  }
  void RenderOne() {
    Write(RenderMark::kBegins, "");
    auto input = ReadInput([this] { return owner_.Read(std::nullopt); });
    if (!input) _exit(EXIT_FAILURE);
    TextSender text(answers_);
    const Status rendered = RenderTo(text, parsed_, *std::move(input));
    if (!rendered) return SendError(answers_, rendered.error());
    text.Flush();
  }

  MessageSocket answers_;
  MessageSocket& owner_;
  const ParsedTemplate& parsed_;
};

// Watches the rendering child for the owner.
void ServeOwner(std::string_view request, MessageSocket owner,
                const Result<ParsedTemplate>& parsed) {
  RelayEnd end{.outcome = Trial::Outcome::kPassed};
  if (!parsed) {
    SendError(owner, parsed.error());
  } else if (request != kAskParsed) {
    const uint64_t memory = request == kAskLarge ? kLargeRenderMemory : kSmallRenderMemory;
    end = RelayChild(owner, [&](MessageSocket answers) {
      Renderer(std::move(answers), owner, *parsed).Run(memory);
    });
  }
  std::string words(1, static_cast<char>(end.outcome));
  words += end.exit_code == kOutOfMemory ? '1' : '0';
  words += ProcessorTime(end.processor_seconds);
  owner.Write(MessageOf(RenderMark::kEnd, words), std::nullopt);
}

}  // namespace

ChildStarter::Work TemplateWork(TemplateText given) {
  // Shared by the helper and the children that it forks.
  auto parsed = std::make_shared<std::optional<Result<ParsedTemplate>>>();
  const auto prepare = [parsed, given = std::move(given)] {
    ReturnLargeBlocksAtOnce();
    LimitChild(kParseMemory);
    ProcessorLimit limit(kLongestParse);
    limit.Resume();
    parsed->emplace(ParseGiven(given));
    limit.Pause();
  };
  return {.prepare = prepare,
          .serve =
              [parsed](std::string_view request, MessageSocket answers) {
                ServeOwner(request, std::move(answers), **parsed);
              },
          .most_children = 4,  // one for each size, and one of each that is being ended
          .what = "the chat template's renderings",
          .purpose = "render the chat template",
          .what_fails = "conversations"};
}

}  // namespace moestro
