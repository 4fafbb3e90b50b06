// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "base/work_limit.h"
#include "cli/flags.h"
#include "cli/program.h"
#include "cli/report.h"
#include "cli/terminal_session.h"
#include "commands/commands.h"
#include "commands/named_model.h"
#include "hub/cache_changes.h"
#include "hub/hub_cache.h"
#include "hub/hub_settings.h"

namespace moestro {
namespace {

struct PullOptions {
  std::string name;
  bool dry_run = false;
  bool json = false;
};

// Lines of JSON for programs, a bar and sentences for people.
class PullReport {
 public:
  PullReport(bool is_json, Output& output)
      : is_json_(is_json), output_(output), bar_(ProgressBar::Stderr()) {}

  Status Plan(const PullPlan& plan, const HubCache& cache) {
    if (!is_json_) return output_.Write(PullPlanText(plan, cache) + "\n");
    Json files = Json::Array();
    for (const HubFile& file : plan.model.files) {
      Json entry = Json::Object();
      entry.Set("file", file.path).Set("bytes", file.size).Set("hash", BlobNameOf(file));
      files.Push(std::move(entry));
    }
    Json line = Json::Object();
    line.Set("event", "plan")
        .Set("name", TextOf(plan.name))
        .Set("commit", plan.commit)
        .Set("quantisation", plan.model.quantisation)
        .Set("files", std::move(files))
        .Set("bytes", plan.model.bytes())
        .Set("missing_bytes", plan.missing_bytes)
        .Set("free_bytes", plan.free_bytes)
        .Set("cache", cache.layout().cache());
    return output_.Write(line.Dump() + "\n");
  }

  void Progress(const PullProgress& progress) {
    ShowPull(bar_, progress);
    using Clock = std::chrono::steady_clock;
    if (!is_json_ || Clock::now() < next_line_) return;
    next_line_ = Clock::now() + std::chrono::seconds(1);
    Json line = Json::Object();
    line.Set("event", "progress")
        .Set("file", progress.file)
        .Set("bytes_there", progress.there)
        .Set("bytes", progress.total);
    Write(line);
  }

  void Say(std::string_view text) {
    if (!is_json_) return LogWarning("{}", text);
    Json line = Json::Object();
    line.Set("event", "waiting").Set("text", text);
    Write(line);
  }

  Status Done(const PullPlan& plan) {
    bar_.Clear();
    if (!is_json_) {
      return output_.Write(
          Format("{} is there: {}\n", Printable(TextOf(plan.name)), Printable(plan.path, 1000)));
    }
    Json line = Json::Object();
    line.Set("event", "done").Set("name", TextOf(plan.name)).Set("path", plan.path);
    return output_.Write(line.Dump() + "\n");
  }

 private:
  // A full disk behind standard output does not end a download.
  void Write(const Json& line) {
    if (const Status said = output_.Write(line.Dump() + "\n"); !said) {
      LogWarning("{}", said.error().message);
    }
  }

  bool is_json_;
  Output& output_;
  ProgressBar bar_;
  std::chrono::steady_clock::time_point next_line_;
};

Status Run(const PullOptions& options) {
  TRY(const HubSettings settings, HubSettingsOf(false));
  TRY(const ModelName name, HubNameOf(options.name, settings));
  if (name.kind == ModelNameKind::kPath) {
    return Fail(Errc::kUsage, "'{}' is no name of a model; write owner/repo:QUANTISATION",
                Printable(options.name));
  }
  const HubCache cache(settings.cache);
  StopSignal stop;
  const StopOnInterrupt on_interrupt(stop);
  TRY(HubClient client, HubClient::Create(settings, stop));
  TRY(const PullPlan plan, PlanPull(client, cache, name));
  Output output(STDOUT_FILENO);
  PullReport report(options.json || isatty(STDOUT_FILENO) != 1, output);
  TRY_STATUS(report.Plan(plan, cache));
  if (options.dry_run) return CheckRoom(plan, cache);
  TRY_STATUS(PullWatched(client, cache, plan,
                         {.progress = [&](const PullProgress& p) { report.Progress(p); },
                          .say = [&](std::string_view text) { report.Say(text); }}));
  return report.Done(plan);
}

}  // namespace

void AddPull(CommandLine& line) {
  auto options = std::make_shared<PullOptions>();
  Flags pull = line.AddCommand(CommandNamed("pull"), [options] { return ExitCode(Run(*options)); });
  pull.Footer(
      "NAME is owner/repo[:quantisation][@revision], hf:owner/repo/FILE.gguf, or the address of a "
      "page of the hub. Without a quantisation it is Q4_K_M, or the only one there is. What is in "
      "the cache that other tools share is not fetched again, and what was begun goes on. "
      "HF_ENDPOINT, HF_TOKEN and HF_HUB_CACHE say where from, as whom and where to.\nExample: "
      "moestro pull owner/repo:Q4_K_M");
  pull.Add("NAME", options->name, "of a model").Required();
  pull.AddSwitch("--dry-run", options->dry_run, "only say what would be fetched");
  pull.AddSwitch("--json", options->json,
                 "one JSON object a line; so it is without a terminal, too");
}

namespace {

struct ListOptions {
  bool json = false;
};

std::string PartName(const CachedPart& part) {
  return part.file.empty() ? part.repo + " (" + part.etag + ")"
                           : "hf:" + part.repo + "/" + part.file;
}

std::string ListAsText(const HubCache& cache) {
  std::string text;
  for (const CachedModel& model : cache.Models()) {
    text += Format("{:>10}  {}\n", FormatBytes(model.model.bytes()), Printable(model.name(), 400));
  }
  for (const CachedPart& part : cache.Parts()) {
    text += Format("{:>10}  {}, of {}: not whole yet\n", FormatBytes(part.there),
                   Printable(PartName(part), 400), FormatBytes(part.size));
  }
  if (text.empty()) {
    return Format("no model is in {}; fetch one with: moestro pull NAME\n", cache.layout().cache());
  }
  return text;
}

Json ListAsJson(const HubCache& cache) {
  Json models = Json::Array();
  for (const CachedModel& model : cache.Models()) {
    Json entry = Json::Object();
    entry.Set("name", model.name())
        .Set("bytes", model.model.bytes())
        .Set("files", model.model.files.size())
        .Set("commit", model.commit)
        .Set("path", model.path);
    models.Push(std::move(entry));
  }
  Json parts = Json::Array();
  for (const CachedPart& part : cache.Parts()) {
    Json entry = Json::Object();
    entry.Set("name", PartName(part)).Set("bytes_there", part.there).Set("bytes", part.size);
    parts.Push(std::move(entry));
  }
  Json object = Json::Object();
  object.Set("cache", cache.layout().cache())
      .Set("models", std::move(models))
      .Set("parts", std::move(parts));
  return object;
}

Status Run(const ListOptions& options) {
  TRY(const HubSettings settings, HubSettingsOf(true));
  const HubCache cache(settings.cache);
  Output output(STDOUT_FILENO);
  return output.Write(options.json ? ListAsJson(cache).Dump() + "\n" : ListAsText(cache));
}

}  // namespace

void AddList(CommandLine& line) {
  auto options = std::make_shared<ListOptions>();
  Flags list = line.AddCommand(CommandNamed("list"), [options] { return ExitCode(Run(*options)); });
  list.Footer("Whoever fetched them. Each name can be given to run, serve, bench and inspect.");
  list.AddSwitch("--json", options->json, "one JSON object");
}

namespace {

Status Run(const std::string& text) {
  TRY(const HubSettings settings, HubSettingsOf(true));
  TRY(const ModelName name, HubNameOf(text, settings));
  if (name.kind == ModelNameKind::kPath) {
    return Fail(Errc::kUsage, "'{}' is no name of a model; 'moestro list' has the names",
                Printable(text));
  }
  TRY(const Removal removal, RemoveModel(HubCache(settings.cache), name));
  std::string said =
      Format("{} is removed, {} freed", Printable(removal.name, 400), FormatBytes(removal.freed));
  if (removal.was_partial) said += " (it was not whole)";
  if (removal.kept > 0) {
    said += Format("; {} stay, since another snapshot has them", FormatBytes(removal.kept));
  }
  return Output(STDOUT_FILENO).Write(said + "\n");
}

}  // namespace

void AddRemove(CommandLine& line) {
  auto name = std::make_shared<std::string>();
  Flags remove = line.AddCommand(CommandNamed("remove"), [name] { return ExitCode(Run(*name)); });
  remove.Footer(
      "NAME is one that 'moestro list' says. Other tools lose the model, too; a content that "
      "another snapshot of its repository links stays.");
  remove.Add("NAME", *name, "of a model").Required();
}

}  // namespace moestro
