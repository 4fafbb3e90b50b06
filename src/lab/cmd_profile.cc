// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/terminal.h"
#include "base/text.h"
#include "cli/common_flags.h"
#include "cli/flags.h"
#include "cli/program.h"
#include "cli/report.h"
#include "cli/terminal_session.h"
#include "lab/commands.h"
#include "lab/record_report.h"
#include "learned/beside_model.h"
#include "learned/learned_tables.h"
#include "load/open_engine.h"
#include "offline/record/profile.h"
#include "offline/record/record_texts.h"
#include "trace/trace_file.h"

namespace moestro {
namespace {

struct ProfileOptions {
  CommonOptions common;
  std::string model;
  std::vector<std::string> texts;
  std::vector<std::string> traces;
  OutputPath output;
  OutputPath norms;  // where norms go; empty: see NormsPath()
  std::optional<Shard> shard;
  uint32_t tokens = 0;  // of each text or trace; 0: all
};

// Joins the experts of several traces, which are read one after the other.
Result<RecordedRouting> JoinTraces(const ProfileOptions& options) {
  std::optional<RecordedRouting> all;
  for (const std::string& path : options.traces) {
    TRY(const Trace part, ReadTrace(path));
    const ModelId& model = part.info().model;
    if (!all) all = {.model = model, .experts = PathCounter(model.shape)};
    TRY_STATUS(CheckMadeFor(all->model, model, path, "give traces of one model"));
    if (model.shape != all->model.shape) {
      return Fail(Errc::kInvalidRequest,
                  "{}: {} of its layers are an encoder's, and {} of the traces before it; give "
                  "traces of one model",
                  path, model.shape.n_encoder, all->model.shape.n_encoder);
    }
    CountTrace(part, options.tokens > 0 ? options.tokens : part.tokens(), all->experts);
  }
  return *std::move(all);
}

// Routing of texts, with norms.
struct RecordedTexts {
  std::optional<RecordedRouting> routing = {};  // nullopt: the shard has no windows
  std::optional<ShardInfo> shard = {};
};

Result<RecordedTexts> RecordRouting(const ProfileOptions& options) {
  RecordedTexts recorded;
  std::optional<RecordedRouting>& all = recorded.routing;
  const auto open = [&](const TextsToRecord& read) -> Result<TraceSink> {
    all = {.model = read.info.model, .experts = PathCounter(read.info.shape())};
    all->experts.Reserve(read.tokens);
    return [&](const TraceToken& token) -> Status {
      all->experts.Add(token.experts, token.is_source);
      return {};
    };
  };
  std::optional<OutputNorms> norms;
  const auto watch = [&](const ModelSpec& spec, const ModelId& id) -> ExpertObserver {
    norms.emplace(id.shape, spec.n_embd_expert(), options.shard.has_value());
    return [&norms](const SeenExperts& seen) { norms->Add(seen); };
  };
  std::optional<ShardRequest> shard;
  if (options.shard) shard = {.command = ShardOf::kProfile, .shard = *options.shard};
  // Experts are the same whether tokens come one by one or together, which is faster.
  ProgressBar bar(ProgressBar::Stderr());
  TRY(recorded.shard, RecordTexts({.model = options.model,
                                   .engine = options.common.engine,
                                   .texts = options.texts,
                                   .tokens = options.tokens,
                                   .prefill = std::numeric_limits<uint32_t>::max(),
                                   .shard = shard,
                                   .bytes_per_expert = sizeof(ExpertId),
                                   .bytes_per_window = shard ? sizeof(double) : 0,
                                   .watch_experts = watch,
                                   .end_window =
                                       [&norms] {
                                         if (norms) norms->EndWindow();
                                       },
                                   .progress = ShowOn(bar)},
                                  open));
  bar.Clear();
  if (all) all->norms = std::move(norms);
  return recorded;
}

Status CheckUsage(const ProfileOptions& options) {
  if (options.texts.empty() == options.traces.empty()) {
    return Fail(Errc::kUsage,
                "give either texts to learn from (--text FILE) or traces (--trace FILE)");
  }
  TRY_STATUS(CheckAllExperts("profile", options.common.engine));
  if (!options.norms.empty() && options.texts.empty()) {
    return Fail(Errc::kUsage, "traces hold no outputs to measure; --norms-output needs --text");
  }
  if (options.shard && options.texts.empty()) {
    return Fail(Errc::kUsage, "--shard is a share of texts, give some with --text FILE");
  }
  if (options.shard && !options.norms.empty()) {
    return Fail(Errc::kUsage, "a shard's norms are in its file; give --norms-output to 'merge'");
  }
  if (!options.model.empty()) return {};
  if (!options.texts.empty()) return Fail(Errc::kUsage, "name the model that --text is for");
  if (options.output.empty()) {
    return Fail(Errc::kUsage, "name the model, or say where its paths go (-o FILE)");
  }
  return {};
}

// The model of the recorded routing. A model named beside traces must fit them.
Result<ModelId> FindModel(const ProfileOptions& options, const ModelId& recorded) {
  if (options.model.empty() || options.traces.empty()) return recorded;
  TRY(const ModelToLoad model, ModelToLoad::Open(options.model, options.common.engine.engine));
  ModelId id = model.id();
  // Before a hosted model is loaded its layers with experts are not known.
  if (!model.is_native()) id.shape = recorded.shape;
  TRY_STATUS(CheckMadeFor(id, recorded, options.traces.front(),
                          Format("record one with 'moestro trace {}'", options.model)));
  return id;
}

// Path of the norms: as given; else beside the model, as for paths; empty if no text is read or the
// paths go elsewhere.
OutputPath NormsPath(const ProfileOptions& options) {
  if (!options.norms.empty() || options.texts.empty() || !options.output.empty()) {
    return options.norms;
  }
  return options.norms.Beside(NormsBeside(options.model));
}

// Outputs are measured by the native engine. An hour of recording ends otherwise with a refusal.
Status CheckMeasures(const ProfileOptions& options) {
  if (options.norms.empty()) return {};
  TRY(const ModelToLoad model, ModelToLoad::Open(options.model, options.common.engine.engine));
  if (model.is_native()) return {};
  return Fail(Errc::kUnsupported,
              "--norms-output needs the native engine; this model runs on the hosted one");
}

ProfileFiles FilesOf(const ProfileOptions& options) {
  return {.paths = options.output.empty() ? options.output.Beside(PathsBeside(options.model))
                                          : options.output,
          .norms = NormsPath(options)};
}

Result<RecordedRouting> FindRouting(const ProfileOptions& options) {
  if (!options.traces.empty()) return JoinTraces(options);
  TRY_STATUS(CheckMeasures(options));
  TRY(RecordedTexts recorded, RecordRouting(options));
  return *std::move(recorded.routing);
}

Status RunShard(const ProfileOptions& options) {
  TRY_STATUS(CheckShardOutput(options.output));
  TRY(const RecordedTexts recorded, RecordRouting(options));
  TRY_STATUS(recorded.routing
                 ? WriteProfileShard(options.output, *recorded.shard, *recorded.routing)
                 : WriteShard(options.output, *recorded.shard, {}));
  return Output(STDOUT_FILENO)
      .Write(ShardText(*recorded.shard, options.output.text(), options.common.json));
}

Status Run(const ProfileOptions& options) {
  TRY_STATUS(CheckUsage(options));
  if (options.shard) return RunShard(options);
  TRY_STATUS(CheckFiles(FilesOf(options)));
  TRY(const RecordedRouting routing, FindRouting(options));
  TRY(const ModelId model, FindModel(options, routing.model));
  TRY(const Profile profile, LearnProfile(routing, model, FilesOf(options)));
  Output output(STDOUT_FILENO);
  if (options.common.json) return output.Write(ProfileAsJson(profile).Dump() + "\n");
  return output.Write(DescribeProfile(profile));
}

}  // namespace

void AddProfile(CommandLine& line) {
  auto options = std::make_shared<ProfileOptions>();
  Flags profile =
      line.AddCommand(CommandNamed("profile"), [options] { return ExitCode(Run(*options)); });
  profile.Footer(
      "Writes MODEL.paths, from which the predictor 'paths' predicts the next layers' experts and "
      "by which the most popular ones are on a device first, and MODEL.norms for --importance "
      "score-norm. docs/paths-format.md describes the file.\n"
      "Examples: moestro profile model.gguf --text story.txt --text code.txt\n"
      "          moestro profile --trace story.trace -o model.gguf.paths");
  profile.Add("MODEL", options->model, "GGUF file; may be left out with --trace and -o");
  profile.Add("--text", options->texts, "text to learn from; several are learned together")
      .Type("FILE");
  profile.Add("--trace", options->traces, "routing recorded by 'moestro trace' instead")
      .Type("FILE");
  profile.Add("-n,--tokens", options->tokens, "at most this many tokens of each of them")
      .Positive();
  profile.AddOutput(
      "--norms-output", options->norms,
      "mean lengths of the experts' outputs, measured with --text (default: MODEL.norms, "
      "none with -o)",
      NormsBeside);
  profile.AddOutput("-o,--output", options->output, "the paths (default: MODEL.paths)",
                    PathsBeside);
  AddShardFlag(profile, options->shard);
  AddCommonFlags(profile, options->common);
}

}  // namespace moestro
