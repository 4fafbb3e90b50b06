// SPDX-License-Identifier: MIT
// Models by name: names of the hub, the small model inside the executable, local paths.
#pragma once

#include <string>

#include "base/result.h"
#include "base/terminal.h"
#include "base/work_limit.h"
#include "cli/flags.h"
#include "engine/engine_options.h"
#include "hub/cache_changes.h"
#include "hub/hub_cache.h"
#include "hub/hub_client.h"
#include "hub/hub_settings.h"
#include "hub/model_name.h"

namespace moestro {

// Models by name: turns the text that the user typed for MODEL into the path of a file.

// Meaning of models' names on this machine: by the hub that the environment names, and by local
// files.

// Settings of the hub by the environment; with --offline no server may be called.
Result<HubSettings> HubSettingsOf(bool is_offline);
// Parses a name; a path that exists here wins. Errors: those of ParseModelName().
Result<ModelName> ModelNameOf(const std::string& text, const HubSettings& settings);
// Parses a name of the hub, as ModelNameOf(). kInvalidRequest also for an address outside the hub.
Result<ModelName> HubNameOf(const std::string& text, const HubSettings& settings);

// The small story model inside the executable, as an ordinary file.

inline constexpr const char* kDemoPrompt = "Once upon a time";

// The path of a file with the embedded model: in $XDG_CACHE_HOME/moestro (or ~/.cache/moestro),
// written the first time, and again if its bytes are wrong. If no such folder can be written, the
// file is in memory; it then takes RAM and allows no direct reads. kIo if neither works.
Result<std::string> DemoModelPath();

// The demo model's path with the cache folder given; empty: in memory. For tests.
Result<std::string> DemoModelPathIn(const std::string& folder);

struct NamedModelOptions {
  bool may_fetch = false;   // --yes
  bool is_offline = false;  // --offline
  bool is_run = true;       // the model will run, so it has to fit; else only its directory is read
  // A service manager waits for this process to be ready, but not as long as fetching a model
  // takes.
  bool is_waited_for = false;
};

// --yes and --offline. `options` must outlive the parsing.
void AddNamedModelFlags(Flags flags, NamedModelOptions& options);

// Returns a path unchanged; for a name, its file in the cache. A missing model is planned for an
// engine with `engine`'s budget and context, and fetched with --yes, or after a question at a
// terminal, unless a service manager waits. kInvalidRequest: the model is missing (names the
// command that fetches it), or with --yes it would not fit. kInvalidFile: with --yes the file is
// not a model. Other errors: those of ParseModelName(), ReadHubSettings(), HubCache::Find() and
// Pull().
Result<std::string> FindNamedModel(const std::string& text, const NamedModelOptions& options,
                                   const EngineOptions& engine);

// "fetches o/r:Q4_K_M: 18.6 GiB in 1 file, 3.0 GiB of it missing, 120.1 GiB free in FOLDER".
std::string PullPlanText(const PullPlan& plan, const HubCache& cache);
// Shows the progress of a pull on the bar.
void ShowPull(ProgressBar& bar, const PullProgress& progress);
// Pulls; an interrupt is an error whose message names the command to go on.
Status PullWatched(HubClient& client, const HubCache& cache, const PullPlan& plan,
                   const PullWatcher& watcher);

}  // namespace moestro
