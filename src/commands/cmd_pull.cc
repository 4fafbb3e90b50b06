// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "base/json.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/progress.h"
#include "base/stop_signal.h"
#include "cli/command_names.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/report.h"
#include "commands/commands.h"
#include "commands/hub_names.h"
#include "commands/named_model.h"

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

}  // namespace moestro
