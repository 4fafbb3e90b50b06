// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/cache_files.h"
#include "base/json.h"
#include "base/output_file.h"
#include "base/terminal.h"
#include "base/text.h"
#include "chat/chat_format.h"
#include "cli/common_flags.h"
#include "cli/flags.h"
#include "cli/program.h"
#include "cli/report.h"
#include "cli/terminal_session.h"
#include "commands/beam_run.h"
#include "commands/chat.h"
#include "commands/commands.h"
#include "commands/named_model.h"
#include "commands/plan_report.h"
#include "commands/step_report.h"
#include "native/native_engine.h"
#include "text/conversation.h"
#include "text/divergence.h"
#include "text/drafts.h"
#include "text/text_tokens.h"

namespace moestro {
namespace {

struct RunOptions {
  CommonOptions common;
  SamplingOptions sampling;
  std::string model;  // empty: the demo model
  NamedModelOptions named;
  std::optional<std::string> prompt;
  std::optional<std::string> file;
  std::optional<std::string> system;
  int64_t n_predict = -1;
  std::vector<std::string> stops;
  bool conversation = false;
  bool single_turn = false;
  bool escapes = true;
  bool shows_prompt = true;
  bool shows_summary = true;
  bool explains = false;
  OutputPath session;  // the file; empty: none
  BeamFlags beams;
  DraftOptions draft;

  bool is_demo() const { return model.empty(); }
};

// Source of the text to continue: -p, -f, or a pipe; nullopt: a person at a terminal types it.
Result<std::optional<TextSource>> FindPrompt(const RunOptions& options) {
  if (options.prompt) {
    auto text = std::make_shared<const std::string>(
        options.escapes ? ProcessEscapes(*options.prompt) : *options.prompt);
    return [text, source = FromText(*text)](size_t most) { return source(most); };
  }
  if (options.file) {
    TRY(TextSource source, OpenText(*options.file));
    return source;
  }
  if (isatty(STDIN_FILENO) == 1) return std::nullopt;
  return StandardInput();
}

// Reads the whole prompt, as far as memory suffices.
Result<Prompt> ReadWhole(const RunOptions& options, const TextSource& source,
                         const Session& session) {
  const EngineOptions& engine = options.common.engine;
  TRY(Prompt prompt, ReadPrompt(session.vocab(), source, session.limit(), engine));
  const bool is_pipe = !options.prompt && !options.file;
  if (!prompt.text.empty() || !is_pipe || !options.is_demo()) return prompt;
  return ReadPrompt(session.vocab(), FromText(kDemoPrompt), session.limit(), engine);
}

Status PrintJson(const RunOptions& options, const std::string& prompt, const Generated& made,
                 Session& session, const OneStepKl& checked, Output& output) {
  TRY(const RunReport report, MakeReport(session.engine(), session.sequence(), false));
  Json object = Json::Object();
  object.Set("model", options.is_demo() ? "demo" : options.model)
      .Set("prompt", prompt)
      .Set("text", made.text)
      .Set("stop", ToString(made.reason))
      .Set("seed", options.sampling.seed)
      .Set("threads", session.engine().facts().threads);
  AddReport(object, report);
  if (const auto wish = options.common.quality.kl) AddOneStepKl(object, checked, *wish);
  return output.Write(object.Dump() + "\n");
}

// The saved text, if any, and the prompt behind it, without the prompt's begin tokens, which the
// saved text has.
std::vector<Token> AfterSaved(Session& session, std::span<const Token> prompt) {
  const std::span<const Token> saved = session.sequence().tokens();
  std::vector<Token> tokens(saved.begin(), saved.end());
  const std::vector<Token> begin = session.vocab().begin_tokens();
  if (!tokens.empty() && std::ranges::starts_with(prompt, begin)) {
    prompt = prompt.subspan(begin.size());
  }
  tokens.insert(tokens.end(), prompt.begin(), prompt.end());
  return tokens;
}

// A plain continuation of `prompt`.
Status Complete(const RunOptions& options, const Prompt& prompt, TerminalSession& session,
                const OneStepKl& checked, Output& output) {
  const bool streams = !options.common.json;
  // Text of a target does not continue its source.
  const bool goes_on = !session.session().engine().facts().encoder;
  if (streams && goes_on && options.shows_prompt) TRY_STATUS(output.WriteGenerated(prompt.text));
  const GenerateOptions generate{.max_tokens = options.n_predict, .stops = options.stops};
  const std::vector<Token> tokens = AfterSaved(session.session(), prompt.tokens);
  const Result<Generated> made = session.Continue(tokens, generate, [&](std::string_view text) {
    return !streams || (output.WriteGenerated(text).has_value() && !output.closed());
  });
  if (streams) TRY_STATUS(output.Write("\n"));
  if (!made) return std::unexpected(made.error());
  if (streams) return {};
  return PrintJson(options, prompt.text, *made, session.session(), checked, output);
}

// The model's chat format, with warnings for its faults; nullopt: the model has no template. Forks,
// so REQUIRES: the process has one thread.
std::optional<ChatFormat> FormatOf(const Vocab& vocab) {
  if (!vocab.has_chat_template()) return std::nullopt;
  ChatFormat format = ChatFormat::Make(ChatModelOf(vocab, vocab.chat_template()));
  for (const std::string& warning : format.warnings()) LogWarning("{}", warning);
  return format;
}

Status Converse(const RunOptions& options, const std::optional<std::string>& prompt,
                const std::optional<ChatFormat>& format, TerminalSession& session, Output& output) {
  const GenerateOptions generate{.max_tokens = options.n_predict, .stops = options.stops};
  const bool asks_on = isatty(STDIN_FILENO) == 1 && !options.single_turn;
  if (format) {
    return RunChat(
        session, *format,
        {.system = options.system, .first = prompt, .asks_on = asks_on, .generate = generate},
        output);
  }
  if (options.conversation || options.system) {
    return Fail(Errc::kUnsupported,
                "this model has no chat template, so it cannot hold a conversation; leave out -cnv "
                "and -sys to have it continue the text of -p");
  }
  return RunLines(session, generate, output);
}

Status PrintSummary(const RunOptions& options, Session& session, const OneStepKl& checked) {
  TRY(const RunReport report, MakeReport(session.engine(), session.sequence(), false));
  std::string summary = SummaryText(report);
  if (const DraftControl* const drafts = session.draft_control()) {
    summary += DraftFiguresText(drafts->figures());
  }
  if (const auto planned = FindPlanned(CacheFolder(), session.engine(), report)) {
    summary += PlannedText(*planned, report);
  }
  KeepCachingSeen(CacheFolder(), session.engine(), report);
  if (const auto wish = options.common.quality.kl) {
    const EngineOptions& engine = options.common.engine;
    summary += DescribeOneStepKl(checked, *wish, engine.is_exact());
  }
  PrintOnStderr(Format("\n{}seed     {}\n", summary, options.sampling.seed));
  return {};
}

Status CheckBeams(const RunOptions& options, bool converses) {
  if (!options.beams.beams) return {};
  if (converses) {
    return Fail(Errc::kUsage, "--beams continues a prompt (-p, -f or a pipe), no conversation");
  }
  if (options.sampling.temp != SamplingOptions{}.temp && options.sampling.temp > 0.0F) {
    return Fail(Errc::kUsage, "--beams takes the likeliest beams; --temp above 0 is for sampling");
  }
  return {};
}

void ShowPlans(const PlanLog& plans, const Engine& engine) {
  std::vector<std::string> names;
  for (const DeviceBudget& device : engine.memory().devices) names.push_back(device.info.name);
  PrintOnStderr(plans.Text(names));
}

void ShowPrompts(Session& session) {
  const PromptCounts& prompts = session.prompts();
  std::string text = Format("prompts  {} tokens: {} cached, {} computed", prompts.all,
                            prompts.cached, prompts.all - prompts.cached);
  if (prompts.recomputed > 0) {
    text += Format(", {} of them again, because {}", prompts.recomputed,
                   session.engine().facts().has_states
                       ? "layers with states go back to checkpoints only"
                       : "the text could not go back to where it was changed");
  }
  PrintOnStderr(text + "\n");
}

Status FollowBeams(const RunOptions& options, const std::string& path, const Prompt& prompt,
                   TerminalSession& terminal, Output& output) {
  PlanLog plans;
  PlanObserver notes;
  if (options.explains) notes = [&plans](const LayerPlan& plan) { plans.Note(plan); };
  TRY_STATUS(RunBeams({.flags = options.beams,
                       .prompt = prompt,
                       .model = path,
                       .engine = options.common.engine,
                       .n_predict = options.n_predict,
                       .json = options.common.json,
                       .shows_prompt = options.shows_prompt,
                       .plans = notes},
                      terminal, output));
  if (options.explains) ShowPlans(plans, terminal.session().engine());
  if (options.common.json || !options.shows_summary) return {};
  return PrintSummary(options, terminal.session(), {});
}

Status Run(RunOptions& options) {
  if (options.common.verbose) SetLogLevel(LogLevel::kInfo);
  TRY(const std::optional<TextSource> source, FindPrompt(options));
  const bool converses = options.conversation || options.system || !source;
  if (converses && options.common.json) {
    return Fail(Errc::kUsage,
                "--json needs a prompt to continue (-p, -f or a pipe), no conversation");
  }
  Features features = FeaturesOf(options.common.engine);
  features.draft = options.draft.is_on();
  features.beams = options.beams.beams.has_value();
  TRY_STATUS(CheckTogether(features));
  TRY_STATUS(CheckBeams(options, converses));
  // A session that cannot be saved is refused before the run, not after.
  if (!options.session.empty()) TRY_STATUS(CheckMayCreate(options.session));
  options.sampling.seed = options.common.seed ? *options.common.seed : std::random_device()();
  if (options.escapes) {
    for (std::string& stop : options.stops) stop = ProcessEscapes(stop);
  }
  std::string path;
  if (options.is_demo()) {
    TRY(path, DemoModelPath());
  } else {
    TRY(path, FindNamedModel(options.model, options.named, options.common.engine));
  }
  options.session.Spare(PartsOfSplit(path));
  TRY_STATUS(options.session.Check());
  TRY_STATUS(ApplyQuality(options.common.quality, path, options.common.engine));
  if (options.common.quality.kl) options.common.engine.check_every = kCheckEvery;
  TRY(const std::unique_ptr<TerminalSession> terminal,
      TerminalSession::Load(path, options.common.engine, options.sampling));
  Session& session = terminal->session();
  Prompt prompt;
  if (source) {
    TRY(prompt, ReadWhole(options, *source, session));
  }
  Output output(STDOUT_FILENO);
  if (options.beams.beams) return FollowBeams(options, path, prompt, *terminal, output);
  const std::optional<ChatFormat> format =
      converses ? FormatOf(session.vocab()) : std::optional<ChatFormat>();
  TRY_STATUS(session.DraftWith(options.draft));
  TRY_STATUS(terminal->Start());
  if (!options.session.empty()) TRY_STATUS(session.Resume(options.session.text()));
  PlanLog plans;
  if (options.explains) {
    session.engine().SetPlanObserver([&plans](const LayerPlan& plan) { plans.Note(plan); });
  }
  OneStepKl checked;
  if (options.common.quality.kl) {
    TRY(NativeEngine* const native, AsNative(session.engine(), "--kl"));
    native->SetCheckObserver(
        [&checked](std::span<const float> exact, std::span<const float> actual) {
          checked.Add(exact, actual);
        });
  }
  const auto first = source ? std::optional(prompt.text) : std::nullopt;
  Status said = converses ? Converse(options, first, format, *terminal, output)
                          : Complete(options, prompt, *terminal, checked, output);
  // A conversation is saved after any end; a text that the engine could not continue stays as it
  // was saved.
  const bool is_kept = said || converses || !output.status();
  if (!options.session.empty() && is_kept && session.has_text()) {
    TRY_STATUS(session.Save(options.session));
  }
  TRY_STATUS(std::move(said));
  session.engine().SetPlanObserver({});
  if (options.common.quality.kl) {
    TRY(NativeEngine* const native, AsNative(session.engine(), "--kl"));
    native->SetCheckObserver({});
  }
  if (options.explains) {
    ShowPlans(plans, session.engine());
    ShowPrompts(session);
  }
  if (options.common.json || !options.shows_summary) return {};
  return PrintSummary(options, session, checked);
}

void AddPromptFlags(Flags run, RunOptions& o) {
  run.Group("Prompt and length");
  const Flag prompt =
      run.Add("-p,--prompt", o.prompt, "text to continue, or the first message of a chat");
  run.Add("-f,--file", o.file, "the prompt from a file").Type("FILE").Excludes(prompt);
  run.Add("-n,--predict,--n-predict", o.n_predict,
          "tokens to generate; -1: until the text ends or the context is full")
      .Type("N")
      .ShowDefault();
  run.Add("-r,--reverse-prompt", o.stops, "end the text before this string (repeatable)")
      .Type("TEXT")
      .Repeatable();
  AddDraftFlag(run, o.draft);
  run.AddSwitch("--escape,!--no-escape", o.escapes,
                "read \\n, \\t, \\xHH in -p and -r (default: yes)");
  run.AddSwitch("--display-prompt,!--no-display-prompt", o.shows_prompt,
                "print the prompt before its continuation (default: yes)");
  run.AddSwitch("--perf,!--no-perf", o.shows_summary, "summary on standard error (default: yes)");
  run.AddSwitch(
      "--explain", o.explains,
      "print the plans of the last token (which experts ran, from where, with what weight) and how "
      "many tokens of prompts were computed again, and why");
  run.Group("Conversation");
  run.AddOutput("--session", o.session,
                "go on with the text or conversation saved there, and save it in the end");
  run.AddSwitch("--conversation", o.conversation, "-cnv: chat by the model's own template");
  run.Add("--system-prompt", o.system, "-sys: the system message of the chat").Type("TEXT");
  run.AddSwitch("--single-turn", o.single_turn, "-st: end after one answer");
}

}  // namespace

void AddRun(CommandLine& line) {
  auto options = std::make_shared<RunOptions>();
  Flags run = line.AddCommand(CommandNamed("run"), [options] { return ExitCode(Run(*options)); });
  run.Footer(
      "Without MODEL a small story model that is part of the program. Without a prompt on a "
      "terminal: "
      "a conversation.\nExample: moestro run model.gguf --ram 6G -p \"Once upon a time\" -n 200");
  run.Add("MODEL", options->model, "GGUF file (of a split model the first) or owner/repo:QUANT");
  AddNamedModelFlags(run, options->named);
  AddPromptFlags(run, *options);
  AddSamplingFlags(run, options->sampling);
  AddCommonFlags(run, options->common);
  AddColdFlag(run, options->common);
  AddQualityFlags(run, options->common.quality);
  AddBeamFlags(run, options->beams);
}

}  // namespace moestro
