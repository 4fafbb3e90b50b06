// SPDX-License-Identifier: MIT
#include "chat/template_traits.h"

#include <algorithm>
#include <string>
#include <vector>

#include "chat/answer_style.h"

namespace moestro {
namespace {

constexpr double kMostProbing = 5.0;  // seconds of the processor, of a template that may not end
constexpr std::string_view kSystem = "Probe of system.";
constexpr std::string_view kResult = "Probe of result.";
constexpr std::string_view kTool = "probe_tool";
constexpr std::string_view kLongId = "call_probeProbeProbeProbe0123";
// All that a template may need of a tool.
constexpr std::string_view kParameters =
    R"({"type": "object", "properties": {"probe_key": {"type": "string", "description": "Probe."}}, )"
    R"("required": ["probe_key"]})";
constexpr std::string_view kThoughts = "Probe of thoughts.";
constexpr std::string_view kArguments = R"({"probe_key": "probe value"})";

ChatTurn Turn(std::string_view role, std::string_view content) {
  return {.role = std::string(role),
          .content = std::string(content),
          .reasoning = {},
          .calls = {},
          .call_id = {},
          .name = {}};
}

class Prober {
 public:
  Prober(const ChatTemplate& chat_template, std::string_view text)
      : template_(chat_template), text_(text) {}

  TemplateTraits Run() {
    FindPlainForm();
    if (!traits_.plain_failure.empty()) return traits_;
    const std::vector<ChatTurn> asks{Turn("user", "Probe.")};
    const std::vector<ChatTurn> instructs{Turn("system", kSystem), Turn("user", "Probe.")};
    const std::string instructed = Say(instructs, {}, traits_.forms);
    traits_.knows_system = instructed.contains(kSystem);
    traits_.knows_developer = text_.contains("developer") && KnowsDeveloper(instructed);
    traits_.knows_tools = Say(asks, tools_, traits_.forms).contains(kTool);
    FindRows();
    FindCalls();
    FindThoughts();
    return traits_;
  }

 private:
  Result<std::string> Render(const std::vector<ChatTurn>& turns, const std::vector<Tool>& tools,
                             const TemplateForms& forms, std::string_view arguments = {},
                             bool add_assistant = false) const {
    return template_.Render({.turns = turns,
                             .tools = tools,
                             .arguments = arguments,
                             .add_assistant = add_assistant,
                             .forms = forms},
                            limit_);
  }
  // Empty when the template fails.
  std::string Say(const std::vector<ChatTurn>& turns, const std::vector<Tool>& tools,
                  const TemplateForms& forms, std::string_view arguments = {}) const {
    return Render(turns, tools, forms, arguments).value_or("");
  }

  // Some templates do not survive that the variable of tools is none.
  void FindPlainForm() {
    const std::vector<ChatTurn> asks{Turn("user", "Probe.")};
    const auto with_none = Render(asks, {}, traits_.forms, {}, /*add_assistant=*/true);
    if (with_none) return;
    traits_.forms.has_undefined_tools = true;
    const auto without = Render(asks, {}, traits_.forms, {}, /*add_assistant=*/true);
    if (!without) traits_.plain_failure = without.error().message;
  }

  // `instructed`: the rendering with a system turn in the developer's place. A template that
  // renders both alike takes a developer for the system, perhaps in the first turn alone.
  bool KnowsDeveloper(std::string_view instructed) const {
    const std::string said =
        Say({Turn("developer", kSystem), Turn("user", "Probe.")}, {}, traits_.forms);
    return said.contains(kSystem) && said != instructed;
  }

  bool SaysAll(const std::vector<ChatTurn>& turns) const {
    const std::string said = Say(turns, {}, traits_.forms);
    return std::ranges::all_of(
        turns, [&said](const ChatTurn& turn) { return said.contains(turn.content); });
  }

  void FindRows() {
    const ChatTurn system = Turn("system", kSystem);
    const ChatTurn more = Turn("system", "Probe of more.");
    const ChatTurn ask = Turn("user", "Probe of asking.");
    const ChatTurn again = Turn("user", "Probe of asking again.");
    const ChatTurn answer = Turn("assistant", "Probe of an answer.");
    const ChatTurn rest = Turn("assistant", "Probe of its rest.");
    traits_.knows_systems_in_a_row = SaysAll({system, more, ask});
    traits_.knows_late_system = SaysAll({ask, answer, system, again});
    traits_.knows_users_in_a_row = SaysAll({ask, again});
    traits_.knows_assistants_in_a_row = SaysAll({ask, answer, rest, again});
  }

  // Whether the arguments' text appears as it was sent or, for objects, keys and values as the
  // template writes them.
  static bool SaysArguments(std::string_view said, bool has_object) {
    if (!has_object) return said.contains(kArguments);
    return said.contains("probe_key") && said.contains("probe value") &&
           !said.contains("'probe_key'") && !said.contains("\\\"probe_key");
  }

  bool TryCalls(const std::vector<ChatTurn>& turns, const TemplateForms& forms) {
    const std::string said = Say(turns, tools_, forms);
    if (!said.contains(kTool) || !SaysArguments(said, forms.has_object_arguments)) return false;
    std::vector<ChatTurn> named = turns;
    for (ChatTurn& turn : named) {
      for (ToolCall& call : turn.calls) call.id = kLongId;
      if (!turn.call_id.empty()) turn.call_id = kLongId;
    }
    traits_.wants_short_ids = Say(named, tools_, forms).empty();
    for (ChatTurn& turn : named) turn.name.clear();
    traits_.says_names_of_calls = Say(named, {}, forms).contains(kTool);
    traits_.knows_calls = true;
    traits_.knows_results = said.contains(kResult);
    traits_.forms = forms;
    traits_.knows_calls_in_a_row = KnowsCallsInARow(turns);
    return true;
  }

  // `turns`: a conversation with one call, and perhaps its result.
  bool KnowsCallsInARow(std::vector<ChatTurn> turns) const {
    constexpr std::string_view kMoreTool = "probe_more";
    turns[1].calls.push_back(
        {.id = "probe0002", .name = std::string(kMoreTool), .arguments = std::string(kArguments)});
    if (turns.size() > 2) {
      ChatTurn& more = turns.emplace_back(turns[2]);
      more.call_id = "probe0002";
      more.name = kMoreTool;
    }
    // A result may contain its call's name.
    for (ChatTurn& turn : turns) turn.name.clear();
    return Say(turns, tools_, traits_.forms).contains(kMoreTool);
  }

  void FindCalls() {
    ChatTurn calls = Turn("assistant", "");
    calls.calls.push_back(
        {.id = "probe0001", .name = std::string(kTool), .arguments = std::string(kArguments)});
    ChatTurn result = Turn("tool", kResult);
    result.call_id = "probe0001";
    result.name = kTool;
    const std::vector<ChatTurn> bare{Turn("user", "Probe."), calls};
    std::vector<ChatTurn> full = bare;
    full.push_back(result);
    for (const std::vector<ChatTurn>& turns : {full, bare}) {
      for (const bool has_object : {true, false}) {
        for (const bool has_null : {false, true}) {
          TemplateForms forms = traits_.forms;
          forms.has_object_arguments = has_object;
          forms.has_null_content = has_null;
          if (TryCalls(turns, forms)) return;
        }
      }
    }
  }

  // Finds the key under which the template reads thoughts, if it reads any.
  void FindThoughts() {
    const ChatTurn ask = Turn("user", "Probe.");
    ChatTurn answer = Turn("assistant", "Probe.");
    answer.reasoning = kThoughts;
    ChatTurn call = answer;
    call.calls.push_back(
        {.id = "probe0001", .name = std::string(kTool), .arguments = std::string(kArguments)});
    ChatTurn bare_call = call;
    bare_call.content.clear();
    ChatTurn result = Turn("tool", "Probe.");
    result.call_id = "probe0001";
    result.name = kTool;
    const std::vector<std::vector<ChatTurn>> conversations{
        {ask, answer}, {ask, answer, ask}, {ask, call, result}, {ask, bare_call, result}};
    for (const ThoughtsKey key :
         {ThoughtsKey::kReasoningContent, ThoughtsKey::kThinking, ThoughtsKey::kReasoning}) {
      TemplateForms forms = traits_.forms;
      forms.thoughts_key = key;
      for (const std::vector<ChatTurn>& turns : conversations) {
        if (!Say(turns, {}, forms).contains(kThoughts) &&
            !Say(turns, {}, forms, R"({"enable_thinking": true})").contains(kThoughts))
          continue;
        traits_.knows_reasoning = true;
        traits_.forms = forms;
        return;
      }
    }
    const AnswerStyle style = FindStyle(text_);
    if (style.reasoning_end.empty()) return;
    constexpr std::string_view kWords = "Probe of words.";
    ChatTurn spelled = Turn("assistant", "");
    spelled.content = style.reasoning_begin + "\n" + std::string(kThoughts) + "\n" +
                      style.reasoning_end + "\n\n" + std::string(kWords);
    const std::string said = Say({ask, spelled, ask}, {}, traits_.forms);
    traits_.drops_thoughts = said.contains(kWords) && !said.contains(kThoughts);
  }

  const ChatTemplate& template_;
  std::string_view text_;
  WorkLimit limit_{{.processor_seconds = kMostProbing}};
  std::vector<Tool> tools_{{.name = std::string(kTool),
                            .description = "Probe.",
                            .parameters = std::string(kParameters)}};
  TemplateTraits traits_;
};

}  // namespace

TemplateTraits FindTraits(const ChatTemplate& chat_template, std::string_view template_text) {
  return Prober(chat_template, template_text).Run();
}

}  // namespace moestro
