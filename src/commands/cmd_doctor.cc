// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "cli/flags.h"
#include "cli/program.h"
#include "cli/report.h"
#include "commands/commands.h"
#include "commands/named_model.h"
#include "doctor/diagnose.h"
#include "doctor/read_facts.h"
#include "doctor/read_model.h"

namespace moestro {
namespace {

struct DoctorOptions {
  std::string model;  // file, folder, or a name that is in the cache; empty: no disk is examined
  std::string user;   // empty: the user of this process
  bool json = false;
};

std::string TextOf(const Findings& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += Format("{:<4}  {:<13}  {}\n", NameOf(finding.verdict), finding.check, finding.text);
    if (!finding.remedy.empty()) text += Format("{:21}{}\n", "", finding.remedy);
  }
  return text;
}

Json JsonOf(const Findings& findings) {
  Json list = Json::Array();
  for (const Finding& finding : findings) {
    Json json = Json::Object();
    json.Set("check", finding.check)
        .Set("verdict", NameOf(finding.verdict))
        .Set("text", finding.text)
        .Set("remedy", finding.remedy.empty() ? Json() : Json(finding.remedy));
    list.Push(std::move(json));
  }
  Json object = Json::Object();
  object.Set("verdict", NameOf(WorstOf(findings))).Set("findings", std::move(list));
  return object;
}

int Run(const DoctorOptions& options) {
  const Result<std::string> path = FindNamedModel(options.model, {.is_offline = true}, {});
  SystemFacts facts;
  ReadSystemFacts("", facts);
  const Result<HubSettings> hub = HubSettingsOf(true);
  ReadFolderFacts(hub ? hub->cache : "", facts);
  ReadLibraryFacts(facts);
  if (!options.model.empty())
    facts.model = ReadModel("", path.value_or(options.model), options.user);
  const Findings findings = Diagnose(facts);
  const std::string text = options.json ? JsonOf(findings).Dump(2) + "\n" : TextOf(findings);
  const Status written = Output(STDOUT_FILENO).Write(text);
  if (!written) return ExitCode(written);
  return WorstOf(findings) == Verdict::kBad ? 1 : 0;
}

}  // namespace

void AddDoctor(CommandLine& line) {
  auto options = std::make_shared<DoctorOptions>();
  Flags flags = line.AddCommand(CommandNamed("doctor"), [options] { return Run(*options); });
  const Flag model = flags.Add(
      "MODEL", options->model,
      "GGUF file, folder or fetched owner/repo:QUANT whose disk and readers are looked at");
  flags
      .Add("--user", options->user,
           "who must be able to read the model, such as the user of a service (default: you)")
      .Type("NAME")
      .Needs(model);
  flags.AddSwitch("--json", options->json, "machine-readable output: one JSON object");
  flags.Footer(
      "Exit code 1 if something is bad. docs/doctor.md has the checks and their remedies.");
}

}  // namespace moestro
