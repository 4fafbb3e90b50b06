// SPDX-License-Identifier: MIT
#include "chat/template_message.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "sandbox/message_socket.h"

namespace moestro {
namespace {

// Collects numbers and texts into messages.
class PartWriter {
 public:
  using Write = std::function<Status(std::string_view)>;

  explicit PartWriter(const Write& write) : write_(write) {}

  Status Number(size_t number) {
    AppendNumber(part_, static_cast<uint32_t>(number));
    return part_.size() < kPartBytes ? Status() : Flush();
  }
  Status Text(std::string_view text) {
    TRY_STATUS(Number(text.size()));
    while (!text.empty()) {
      const size_t n = std::min(text.size(), kPartBytes - part_.size());
      part_ += text.substr(0, n);
      text.remove_prefix(n);
      if (part_.size() >= kPartBytes - sizeof(uint32_t)) TRY_STATUS(Flush());
    }
    return {};
  }
  Status Flush() {
    if (part_.empty()) return {};
    const Status sent = write_(part_);
    part_.clear();
    return sent;
  }

 private:
  const Write& write_;
  std::string part_;
};

// Takes numbers and texts out of the parts again. After an error all are empty.
class PartReader {
 public:
  using Read = std::function<std::optional<std::string>()>;

  explicit PartReader(const Read& read) : read_(read) {}

  uint32_t Number() {
    std::string bytes;
    Take(sizeof(uint32_t), bytes);
    std::string_view view = bytes;
    return is_good_ ? TakeNumber(view) : 0;
  }
  std::string Text() {
    std::string text;
    Take(Number(), text);
    return is_good_ ? std::move(text) : std::string();
  }
  bool is_good() const { return is_good_; }

 private:
  void Take(size_t n, std::string& to) {
    to.reserve(n);
    while (n > 0 && is_good_) {
      if (at_ == part_.size()) Fill();
      const size_t taken = std::min(n, part_.size() - at_);
      to.append(part_, at_, taken);
      at_ += taken;
      n -= taken;
    }
  }
  void Fill() {
    auto next = read_();
    is_good_ = next.has_value() && !next->empty();
    part_ = is_good_ ? *std::move(next) : std::string();
    at_ = 0;
  }

  const Read& read_;
  std::string part_;
  size_t at_ = 0;
  bool is_good_ = true;
};

Status WriteTurn(const ChatTurn& turn, PartWriter& writer) {
  for (const std::string* text :
       {&turn.role, &turn.content, &turn.reasoning, &turn.call_id, &turn.name}) {
    TRY_STATUS(writer.Text(*text));
  }
  TRY_STATUS(writer.Number(turn.calls.size()));
  for (const ToolCall& call : turn.calls) {
    for (const std::string* text : {&call.id, &call.name, &call.arguments}) {
      TRY_STATUS(writer.Text(*text));
    }
  }
  return {};
}

ChatTurn ReadTurn(PartReader& reader) {
  ChatTurn turn;
  for (std::string* text :
       {&turn.role, &turn.content, &turn.reasoning, &turn.call_id, &turn.name}) {
    *text = reader.Text();
  }
  for (uint32_t left = reader.Number(); left > 0 && reader.is_good(); --left) {
    ToolCall& call = turn.calls.emplace_back();
    for (std::string* text : {&call.id, &call.name, &call.arguments}) *text = reader.Text();
  }
  return turn;
}

// The choices as bits, in the order of the fields.
uint32_t BitsOf(const TemplateForms& forms, bool add_assistant) {
  return (forms.has_object_arguments ? 1U : 0U) | (forms.has_null_content ? 2U : 0U) |
         (forms.has_undefined_tools ? 4U : 0U) | (add_assistant ? 8U : 0U) |
         (static_cast<uint32_t>(forms.thoughts_key) << 4U);
}

}  // namespace

size_t SizeOf(const TemplateInput& input) {
  size_t bytes = input.arguments.size();
  for (const ChatTurn& turn : input.turns) {
    bytes += turn.content.size() + turn.reasoning.size() + turn.name.size();
    for (const ToolCall& call : turn.calls) bytes += call.name.size() + call.arguments.size();
  }
  for (const Tool& tool : input.tools) {
    bytes += tool.name.size() + tool.description.size() + tool.parameters.size();
  }
  return bytes;
}

Status WriteInput(const TemplateInput& input, const std::function<Status(std::string_view)>& write,
                  const std::function<Status()>& goes_on) {
  PartWriter writer(write);
  TRY_STATUS(writer.Number(BitsOf(input.forms, input.add_assistant)));
  TRY_STATUS(writer.Text(input.arguments));
  TRY_STATUS(writer.Number(input.turns.size()));
  for (const ChatTurn& turn : input.turns) {
    TRY_STATUS(goes_on());
    TRY_STATUS(WriteTurn(turn, writer));
  }
  TRY_STATUS(writer.Number(input.tools.size()));
  for (const Tool& tool : input.tools) {
    TRY_STATUS(goes_on());
    for (const std::string* text : {&tool.name, &tool.description, &tool.parameters}) {
      TRY_STATUS(writer.Text(*text));
    }
  }
  return writer.Flush();
}

std::optional<SentInput> ReadInput(const std::function<std::optional<std::string>()>& read) {
  PartReader reader(read);
  const uint32_t bits = reader.Number();
  SentInput input;
  input.forms = {.has_object_arguments = (bits & 1U) != 0,
                 .has_null_content = (bits & 2U) != 0,
                 .has_undefined_tools = (bits & 4U) != 0,
                 .thoughts_key = static_cast<ThoughtsKey>(std::min(bits >> 4U, 2U))};
  input.add_assistant = (bits & 8U) != 0;
  input.arguments = reader.Text();
  for (uint32_t left = reader.Number(); left > 0 && reader.is_good(); --left) {
    input.turns.push_back(ReadTurn(reader));
  }
  for (uint32_t left = reader.Number(); left > 0 && reader.is_good(); --left) {
    Tool& tool = input.tools.emplace_back();
    for (std::string* text : {&tool.name, &tool.description, &tool.parameters}) {
      *text = reader.Text();
    }
  }
  if (!reader.is_good()) return std::nullopt;
  return input;
}

}  // namespace moestro
