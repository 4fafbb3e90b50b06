// SPDX-License-Identifier: MIT
#include "commands/named_model.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/cache_files.h"
#include "base/input_file.h"
#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/terminal_session.h"
#include "commands/make_plan.h"
#include "commands/plan_report.h"

namespace moestro {

Result<HubSettings> HubSettingsOf(bool is_offline) {
  TRY(HubSettings settings, ReadHubSettings());
  settings.is_offline = settings.is_offline || is_offline;
  return settings;
}

Result<ModelName> ModelNameOf(const std::string& text, const HubSettings& settings) {
  return ParseModelName(text, settings.endpoint, [](const std::string& path) {
    std::error_code ignored;
    return std::filesystem::exists(path, ignored);
  });
}

Result<ModelName> HubNameOf(const std::string& text, const HubSettings& settings) {
  TRY(const ModelName name, ModelNameOf(text, settings));
  if (name.kind != ModelNameKind::kAddress) return name;
  return Fail(Errc::kInvalidRequest,
              "{} is of no hub, so no cache has a place for it; fetch it with: curl -LO {}",
              Printable(text, 400), Printable(text, 400));
}

}  // namespace moestro

// Defined by cmake/Embed.cmake.
extern "C" {
extern const char moestro_demo_model[];
extern const unsigned long moestro_demo_model_size;
}
extern const char moestro_demo_model_sha256[];

namespace moestro {
namespace {

std::string_view Embedded() { return {moestro_demo_model, moestro_demo_model_size}; }

bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool HasEmbeddedBytes(const std::string& path) {
  const Result<UniqueFd> file = OpenRegularFile(path);
  struct stat info{};
  if (!file || fstat(file->get(), &info) != 0) return false;
  if (std::cmp_not_equal(info.st_size, Embedded().size())) return false;
  std::vector<char> buffer(kMiB);
  std::string_view rest = Embedded();
  while (!rest.empty()) {
    const ssize_t n = read(file->get(), buffer.data(), std::min(buffer.size(), rest.size()));
    if (n <= 0) return false;
    const auto got = static_cast<size_t>(n);
    if (rest.substr(0, got) != std::string_view(buffer.data(), got)) return false;
    rest.remove_prefix(got);
  }
  return true;
}

// Gives the file its name. A correct file that another process has put there meanwhile stays,
// because that process has it open and would end if the file were replaced.
bool Publish(const std::string& temporary, const std::string& path) {
  if (link(temporary.c_str(), path.c_str()) != 0 && (errno != EEXIST || !HasEmbeddedBytes(path))) {
    return rename(temporary.c_str(), path.c_str()) == 0;
  }
  unlink(temporary.c_str());
  return true;
}

// Written under another name first, so that no program ever reads half a model under the right one.
bool Install(const std::string& folder, const std::string& path) {
  if (MakePrivateFolder(folder)) return false;
  std::string temporary = path + ".XXXXXX";
  const UniqueFd file(mkostemp(temporary.data(), O_CLOEXEC));
  if (file.get() < 0) return false;
  const bool written =
      WriteAll(file.get(), Embedded()) && fchmod(file.get(), 0644) == 0 && Publish(temporary, path);
  if (!written) unlink(temporary.c_str());
  return written;
}

// Gives back the program's own pages that hold the model: they were read once, and would count as
// memory of this process.
void LeaveEmbedded() {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(Embedded().data());
  const uintptr_t from = (begin + page - 1) / page * page;
  const uintptr_t to = (begin + Embedded().size()) / page * page;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address, rounded
  if (from < to) ::madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
}

// The descriptor stays open for the rest of the process, because the path names it.
Result<std::string> InMemory() {
  const int fd = memfd_create("moestro-demo-model", MFD_CLOEXEC);
  const bool is_written = fd >= 0 && WriteAll(fd, Embedded());
  LeaveEmbedded();
  if (!is_written) {
    return Fail(Errc::kIo, "cannot unpack the demo model ({} MiB): {}", Embedded().size() / kMiB,
                std::strerror(errno));
  }
  return Format("/proc/self/fd/{}", fd);
}

}  // namespace

Result<std::string> DemoModelPathIn(const std::string& folder) {
  if (folder.empty()) return InMemory();
  // The hash in the name keeps versions of the program out of each other's way.
  const std::string path =
      Format("{}/stories-moe-{:.16}.gguf", folder, std::string_view(moestro_demo_model_sha256));
  const bool is_there = HasEmbeddedBytes(path) || Install(folder, path);
  LeaveEmbedded();
  if (is_there) return path;
  LogInfo("cannot write the demo model to {}, keeping it in memory", folder);
  return InMemory();
}

Result<std::string> DemoModelPath() { return DemoModelPathIn(CacheFolder()); }

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
