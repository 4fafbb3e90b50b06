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
#include <streambuf>
#include <utility>

#include "base/system_limits.h"
#include "chat/template_message.h"
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

// What is written becomes messages. The process ends when they cannot be sent.
class MessageBuffer final : public std::streambuf {
 public:
  explicit MessageBuffer(MessageSocket& socket) : socket_(socket) { part_.reserve(kTextPart); }
  void Flush() {
    if (!part_.empty()) Send(part_);
    part_.clear();
  }

 protected:
  std::streamsize xsputn(const char* bytes, std::streamsize n) override {
    std::string_view left(bytes, static_cast<size_t>(n));
    while (!left.empty()) {
      const size_t fits = std::min(left.size(), kTextPart - part_.size());
      part_ += left.substr(0, fits);
      left.remove_prefix(fits);
      if (part_.size() == kTextPart) Flush();
    }
    return n;
  }
  int_type overflow(int_type c) override {
    const char byte = traits_type::to_char_type(c);
    xsputn(&byte, 1);
    return c;
  }

 private:
  void Send(std::string_view part) {
    if (!socket_.Write(MessageOf(RenderMark::kText, part), std::nullopt)) _exit(EXIT_FAILURE);
  }

  MessageSocket& socket_;
  std::string part_;
};

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
  Renderer(MessageSocket answers, MessageSocket& owner, const LibraryTemplate& parsed)
      : answers_(std::move(answers)), owner_(owner), parsed_(parsed) {}

  // Until the owner closes its side, or templates have kept too much: the library has circles of
  // values, which are never freed.
  void Run(uint64_t memory) {
    LimitChild(memory);
    std::set_new_handler([] { _exit(kOutOfMemory); });  // the library makes words of the exception
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
    MessageBuffer text(answers_);
    const Status rendered = parsed_.Render(*std::move(input), text);
    if (!rendered) return SendError(answers_, rendered.error());
    text.Flush();
  }

  MessageSocket answers_;
  MessageSocket& owner_;
  const LibraryTemplate& parsed_;
};

// The process that watches it.
void ServeOwner(std::string_view request, MessageSocket owner,
                const Result<LibraryTemplate>& parsed) {
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
  // Of the helper, and of what it forks.
  auto parsed = std::make_shared<std::optional<Result<LibraryTemplate>>>();
  const auto prepare = [parsed, given = std::move(given)] {
    ReturnLargeBlocksAtOnce();
    LimitChild(kParseMemory);
    ProcessorLimit limit(kLongestParse);
    limit.Resume();
    parsed->emplace(LibraryTemplate::Parse(given));
    limit.Pause();
  };
  return {.prepare = prepare,
          .serve =
              [parsed](std::string_view request, MessageSocket answers) {
                ServeOwner(request, std::move(answers), **parsed);
              },
          .most_children = 4,  // for each size one, and one that is being ended
          .what = "the chat template's renderings",
          .purpose = "render the chat template",
          .what_fails = "conversations"};
}

}  // namespace moestro
