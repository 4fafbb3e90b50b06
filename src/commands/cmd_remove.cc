// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/format.h"
#include "base/printable.h"
#include "cli/command_names.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/report.h"
#include "commands/commands.h"
#include "commands/hub_names.h"
#include "hub/cache_removal.h"
#include "hub/hub_cache.h"
#include "hub/hub_settings.h"

namespace moestro {
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
