// SPDX-License-Identifier: MIT
#include "cli/named_model.h"

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
#include "base/printable.h"
#include "base/progress.h"
#include "cli/interrupt.h"

namespace moestro {
namespace {

bool IsTerminal() { return isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1; }

// Asks on stderr; what is not a clear yes is a no.
bool AskYes(const std::string& question) {
  std::fprintf(stderr, "%s [y/N] ", question.c_str());
  std::fflush(stderr);
  std::string answer;
  for (int c = std::getchar(); c != EOF && c != '\n'; c = std::getchar()) {
    constexpr size_t kLongest = 16;
    if (answer.size() < kLongest) answer += static_cast<char>(c);
  }
  return answer == "y" || answer == "Y" || answer == "yes";
}

// "; nearest there: o/r:Q8_0" of what the cache has; empty: nothing like it.
std::string NearestIn(const HubCache& cache, const ModelName& name) {
  std::vector<std::string> names;
  for (const CachedModel& model : cache.Models()) names.push_back(model.name());
  std::string nearest;
  for (const std::string& near : NearestWords(TextOf(name), names, 3)) {
    nearest += (nearest.empty() ? "; nearest there: " : ", ") + Printable(near);
  }
  return nearest;
}

std::unexpected<Error> NotHere(const ModelName& name, const HubCache& cache) {
  return Fail(Errc::kInvalidRequest,
              "{} is no file and not in the cache of models{}; fetch it with: moestro pull {}",
              Printable(TextOf(name)), NearestIn(cache, name), Printable(TextOf(name)));
}

// With the place where this process looks, which is often a service's own.
std::unexpected<Error> NotFetchedHere(const ModelName& name) {
  const char* home = std::getenv("HF_HOME");
  const std::string place = home == nullptr ? "" : Format("HF_HOME={} ", Printable(home, 4096));
  return Fail(
      Errc::kInvalidRequest,
      "{} is not in the cache of models, and a service does not fetch it, since its manager "
      "would not wait; run first, as the service's user or as root: {}moestro pull {}",
      Printable(TextOf(name)), place, Printable(TextOf(name)));
}

Result<std::string> FetchModel(const ModelName& name, const HubSettings& settings,
                               const HubCache& cache, bool may_fetch) {
  StopSignal stop;
  const StopOnInterrupt on_interrupt(stop);
  TRY(HubClient client, HubClient::Create(settings, stop));
  TRY(const PullPlan plan, PlanPull(client, cache, name));
  TRY_STATUS(CheckRoom(plan, cache));
  const std::string text = PullPlanText(plan, cache);
  if (may_fetch) {
    std::fprintf(stderr, "moestro: fetches %s\n", text.c_str());
  } else if (!AskYes("moestro: fetch " + text + "?")) {
    return NotHere(name, cache);
  }
  ProgressBar bar(ProgressBar::Stderr());
  const PullWatcher watcher{.progress =
                                [&](const PullProgress& p) {
                                  if (p.is_checking)
                                    bar.Update("checking " + Printable(p.file), p.checked,
                                               p.file_bytes);
                                  else
                                    bar.Update("fetching " + Printable(p.file), p.there, p.total);
                                },
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

Result<HubSettings> HubSettingsOf(bool is_offline) {
  TRY(HubSettings settings, ReadHubSettings());
  settings.is_offline = settings.is_offline || is_offline;
  return settings;
}

Result<ModelName> HubNameOf(const std::string& text, const HubSettings& settings) {
  TRY(const ModelName name, ParseModelName(text, settings.endpoint, [](const std::string& path) {
        std::error_code ignored;
        return std::filesystem::exists(path, ignored);
      }));
  if (name.kind != ModelNameKind::kAddress) return name;
  return Fail(Errc::kInvalidRequest,
              "{} is of no hub, so no cache has a place for it; fetch it with: curl -LO {}",
              Printable(text, 400), Printable(text, 400));
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

Status PullWatched(HubClient& client, const HubCache& cache, const PullPlan& plan,
                   const PullWatcher& watcher) {
  const Status status = Pull(client, cache, plan, {}, watcher);
  if (status || status.error().code != Errc::kInterrupted) return status;
  return Fail(Errc::kInterrupted, "stopped; what came is kept, and this goes on: moestro pull {}",
              Printable(TextOf(plan.name)));
}

Result<std::string> FindNamedModel(const std::string& text, const NamedModelOptions& options) {
  // A path needs no environment, however odd that is.
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
  return FetchModel(name, settings, cache, options.may_fetch);
}

}  // namespace moestro
