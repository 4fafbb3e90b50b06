// SPDX-License-Identifier: MIT
#include "commands/named_model.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "base/bytes.h"
#include "base/format.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "base/printable.h"
#include "base/progress.h"
#include "base/visible.h"
#include "cli/interrupt.h"
#include "commands/hub_names.h"
#include "commands/make_plan.h"
#include "commands/plan_report.h"

namespace moestro {
namespace {

bool IsTerminal() { return isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1; }

// Asks on stderr; any answer but a clear yes is a no.
bool AskYes(const std::string& question) {
  PrintOnStderr(Format("{} [y/N] ", question));
  std::string answer;
  for (int c = std::getchar(); c != EOF && c != '\n'; c = std::getchar()) {
    constexpr size_t kLongest = 16;
    if (answer.size() < kLongest) answer += static_cast<char>(c);
  }
  return answer == "y" || answer == "Y" || answer == "yes";
}

// "; nearest: o/r:Q8_0" among the models in the cache; empty: no similar name.
std::string NearestIn(const HubCache& cache, const ModelName& name) {
  std::vector<std::string> names;
  for (const CachedModel& model : cache.Models()) names.push_back(model.name());
  return NearestText(TextOf(name), names);
}

std::unexpected<Error> NotHere(const ModelName& name, const HubCache& cache) {
  return Fail(Errc::kInvalidRequest,
              "{} is no file and not in the cache of models{}; fetch it with: moestro pull {}",
              Printable(TextOf(name)), NearestIn(cache, name), Printable(TextOf(name)));
}

// Error for a model that a service lacks. The advice names the folder that this process searches,
// which is often the service's own.
std::unexpected<Error> NotFetchedHere(const ModelName& name) {
  const char* home = std::getenv("HF_HOME");
  const std::string place = home == nullptr ? "" : Format("HF_HOME={} ", Printable(home, 4096));
  return Fail(
      Errc::kInvalidRequest,
      "{} is not in the cache of models, and a service does not fetch it, since its manager "
      "would not wait; run first, as the service's user or as root: {}moestro pull {}",
      Printable(TextOf(name)), place, Printable(TextOf(name)));
}

// Prints the plan of a model before the model is fetched. With --yes no person judges it, so the
// plan does: kInvalidRequest if the model does not fit, kInvalidFile if the file is not a model.
Status TellPlan(const ModelName& name, const HubSettings& settings,
                const NamedModelOptions& options, const EngineOptions& engine, StopSignal& stop) {
  const Result<PlanReport> plan = MakePlan({.model = TextOf(name),
                                            .settings = settings,
                                            .engine = engine,
                                            .has_choices = false,
                                            .stop = &stop});
  if (!plan) {
    const bool is_no_model = options.may_fetch && plan.error().code == Errc::kInvalidFile;
    if (is_no_model || plan.error().code == Errc::kInterrupted)
      return std::unexpected(plan.error());
    LogWarning("no plan of {}: {}", Printable(TextOf(name)), plan.error().message);
    return {};
  }
  KeepForRuns(*plan);
  if (!plan->chosen && options.may_fetch && options.is_run) {
    return Fail(Errc::kInvalidRequest, "{} {}; to fetch it all the same: moestro pull {}",
                Printable(TextOf(name)), PlanLine(*plan), Printable(TextOf(name)));
  }
  PrintOnStderr(Format("moestro: {} {}\n", Printable(TextOf(name)), PlanLine(*plan)));
  return {};
}

Result<std::string> FetchModel(const ModelName& name, const HubSettings& settings,
                               const HubCache& cache, const NamedModelOptions& options,
                               const EngineOptions& engine) {
  StopSignal stop;
  const StopOnInterrupt on_interrupt(stop);
  TRY(HubClient client, HubClient::Create(settings, stop));
  TRY(const PullPlan plan, PlanPull(client, cache, name));
  TRY_STATUS(CheckRoom(plan, cache));
  TRY_STATUS(TellPlan(name, settings, options, engine, stop));
  const std::string text = PullPlanText(plan, cache);
  if (options.may_fetch) {
    PrintOnStderr(Format("moestro: fetches {}\n", text));
  } else if (!AskYes("moestro: fetch " + text + "?")) {
    return NotHere(name, cache);
  }
  ProgressBar bar(ProgressBar::Stderr());
  const PullWatcher watcher{.progress = [&](const PullProgress& p) { ShowPull(bar, p); },
                            .say = [](std::string_view said) { LogWarning("{}", said); }};
  TRY_STATUS(PullWatched(client, cache, plan, watcher));
  return plan.path;
}

}  // namespace

void AddNamedModelFlags(Flags flags, NamedModelOptions& options) {
  flags.AddSwitch("--yes", options.may_fetch,
                  "fetch a model that is named and not in the cache, without a question");
  flags.AddSwitch("--offline", options.is_offline, "ask no hub, as with HF_HUB_OFFLINE=1");
}

std::string PullPlanText(const PullPlan& plan, const HubCache& cache) {
  const size_t files = plan.model.files.size();
  const uint64_t bytes = plan.model.bytes();
  std::string text = Format("{}: {} in {} file{}", Printable(TextOf(plan.name)), FormatBytes(bytes),
                            files, files == 1 ? "" : "s");
  if (plan.name.quantisation.empty() && !plan.model.quantisation.empty()) {
    text += Format(" of {}", Printable(plan.model.quantisation));
  }
  if (plan.missing_bytes < bytes) text += Format(", {} missing", FormatBytes(plan.missing_bytes));
  return text + Format(", {} free in {}", FormatBytes(plan.free_bytes), cache.layout().cache());
}

void ShowPull(ProgressBar& bar, const PullProgress& progress) {
  if (progress.is_checking)
    bar.Update("checking " + Printable(progress.file), progress.checked, progress.file_bytes);
  else
    bar.Update("fetching " + Printable(progress.file), progress.there, progress.total);
}

Status PullWatched(HubClient& client, const HubCache& cache, const PullPlan& plan,
                   const PullWatcher& watcher) {
  const Status status = Pull(client, cache, plan, {}, watcher);
  if (status || status.error().code != Errc::kInterrupted) return status;
  return Fail(Errc::kInterrupted, "stopped; what came is kept, and this goes on: moestro pull {}",
              Printable(TextOf(plan.name)));
}

Result<std::string> FindNamedModel(const std::string& text, const NamedModelOptions& options,
                                   const EngineOptions& engine) {
  // An existing path wins before the environment is read, which may be faulty.
  std::error_code ignored;
  if (std::filesystem::exists(text, ignored)) return text;
  TRY(const HubSettings settings, HubSettingsOf(options.is_offline));
  TRY(const ModelName name, HubNameOf(text, settings));
  if (name.kind == ModelNameKind::kPath) return text;
  const HubCache cache(settings.cache);
  TRY(const auto found, cache.Find(name));
  if (found) return found->path;
  if (settings.is_offline) {
    return Fail(Errc::kInvalidRequest,
                "{} is no file and not in the cache of models, and offline no hub is asked{}",
                Printable(TextOf(name)), NearestIn(cache, name));
  }
  if (options.may_fetch && options.is_waited_for) return NotFetchedHere(name);
  if (!options.may_fetch && !IsTerminal()) return NotHere(name, cache);
  return FetchModel(name, settings, cache, options, engine);
}

}  // namespace moestro
