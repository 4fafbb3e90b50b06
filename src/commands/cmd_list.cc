// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/format.h"
#include "base/json.h"
#include "base/printable.h"
#include "cli/command_names.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/report.h"
#include "commands/commands.h"
#include "commands/hub_names.h"
#include "hub/hub_cache.h"
#include "hub/hub_settings.h"

namespace moestro {
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

}  // namespace moestro
