// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/format.h"
#include "base/json.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/common_flags.h"
#include "cli/features.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/terminal_session.h"
#include "learned/beside_model.h"
#include "learned/learn_paths.h"
#include "learned/norms_file.h"
#include "learned/path_file.h"
#include "load/model_to_load.h"
#include "offline/record/output_norms.h"
#include "offline/record/record_texts.h"
#include "trace/trace_file.h"

namespace moestro {
namespace {

struct ProfileOptions {
  CommonOptions common;
  std::string model;
  std::vector<std::string> texts;
  std::vector<std::string> traces;
  std::string output;
  std::string norms;    // where norms go; empty: see NormsPath()
  uint32_t tokens = 0;  // of each text or trace; 0: all
};

struct Profile {
  PathFile paths;
  std::string output;
  uint64_t file_bytes = 0;
  size_t held_out = 0;  // tokens
  PathRecall recall;
  std::string norms = {};  // where they went; empty: none were measured
};

// Routing to learn from, and what it was recorded from. Two bytes per expert of a token.
struct Recorded {
  ModelId model;
  PathCounter experts;
  std::optional<OutputNorms> norms = {};  // of texts
};

// The experts of several traces as one, which are read one after the other.
Result<Recorded> JoinTraces(const ProfileOptions& options) {
  std::optional<Recorded> all;
  for (const std::string& path : options.traces) {
    TRY(const Trace part, ReadTrace(path));
    const ModelId& model = part.info().model;
    if (!all) all = {.model = model, .experts = PathCounter(model.shape)};
    TRY_STATUS(CheckMadeFor(all->model, model, path, "give traces of one model"));
    CountTrace(part, options.tokens > 0 ? options.tokens : part.tokens(), all->experts);
  }
  return *std::move(all);
}

Result<Recorded> FindRouting(const ProfileOptions& options) {
  if (!options.traces.empty()) return JoinTraces(options);
  std::optional<Recorded> all;
  const auto open = [&](const TraceInfo& info, uint64_t tokens) -> Result<TraceSink> {
    all = {.model = info.model, .experts = PathCounter(info.shape())};
    all->experts.Reserve(tokens);
    return [&](const TraceToken& token) -> Status {
      all->experts.Add(token.experts);
      return {};
    };
  };
  std::optional<OutputNorms> norms;
  const auto watch = [&norms](const ModelSpec& spec, const ModelId& id) -> ExpertObserver {
    norms.emplace(id.shape, spec.n_embd_expert());
    return [&norms](const SeenExperts& seen) { norms->Add(seen); };
  };
  // Experts are the same whether tokens come one by one or together, which is faster.
  ProgressBar bar(ProgressBar::Stderr());
  TRY_STATUS(RecordTexts({.model = options.model,
                          .engine = options.common.engine,
                          .texts = options.texts,
                          .tokens = options.tokens,
                          .prefill = std::numeric_limits<uint32_t>::max(),
                          .bytes_per_expert = sizeof(ExpertId),
                          .watch_experts = watch,
                          .progress = ShowOn(bar)},
                         open));
  bar.Clear();
  all->norms = std::move(norms);
  return *std::move(all);
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
  if (!options.model.empty()) return {};
  if (!options.texts.empty()) return Fail(Errc::kUsage, "name the model that --text is for");
  if (options.output.empty()) {
    return Fail(Errc::kUsage, "name the model, or say where its paths go (-o FILE)");
  }
  return {};
}

// What the recorded routing is from: of traces the model that was named, which they must fit.
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

// Beside the model, as the paths; nothing is put there when those go elsewhere.
std::string NormsPath(const ProfileOptions& options) {
  if (!options.norms.empty() || options.texts.empty() || !options.output.empty()) {
    return options.norms;
  }
  return NormsBeside(options.model);
}

// Outputs are measured by the native engine. An hour of recording ends otherwise with a refusal.
Status CheckMeasures(const ProfileOptions& options) {
  if (options.norms.empty()) return {};
  TRY(const ModelToLoad model, ModelToLoad::Open(options.model, options.common.engine.engine));
  if (model.is_native()) return {};
  return Fail(Errc::kUnsupported,
              "--norms-output needs the native engine; this model runs on the hosted one");
}

Result<Profile> Learn(const ProfileOptions& options) {
  TRY_STATUS(CheckMeasures(options));
  TRY(const Recorded routing, FindRouting(options));
  const PathCounter& experts = routing.experts;
  const size_t tokens = experts.tokens();
  if (tokens == 0) {
    return Fail(Errc::kInvalidRequest, "no token to learn from; give a longer text or trace");
  }
  TRY(ModelId model, FindModel(options, routing.model));
  const size_t held_out = tokens / 5;
  PathRecall recall;
  if (held_out > 0) {
    const size_t begin = tokens - held_out;
    recall = MeasurePaths(experts.Learn(begin), experts, {begin, tokens});
  }
  Profile profile{.paths = {.model = std::move(model), .tokens = tokens, .table = experts.Learn()},
                  .output = options.output.empty() ? PathsBeside(options.model) : options.output,
                  .held_out = held_out,
                  .recall = recall};
  TRY(profile.file_bytes, WritePaths(profile.output, profile.paths));
  if (routing.norms) profile.norms = NormsPath(options);
  if (!profile.norms.empty()) {
    TRY_STATUS(WriteNorms(
        profile.norms,
        {.model = profile.paths.model, .tokens = tokens, .norms = routing.norms->Mean()}));
  }
  return profile;
}

std::string Describe(const Profile& p) {
  const MoeShape& shape = p.paths.table.shape();
  std::string text = Format(
      "learned  {} tokens, {} layers of {} experts, {} used\n"
      "paths    {} keys, {} in {}\n",
      p.paths.tokens, shape.n_layer, shape.n_expert, shape.n_used, p.paths.table.keys(),
      FormatBytes(p.file_bytes), p.output);
  if (!p.norms.empty()) text += Format("norms    mean lengths of outputs, in {}\n", p.norms);
  if (p.held_out == 0) return text + "recall   not measured: fewer than five tokens\n";
  return text + Format(
                    "recall   {:.1f} % on the last {} tokens, learned from those before; {:.1f} % "
                    "by popularity, {:.1f} % by repeating the last token\n",
                    100.0 * p.recall.paths, p.held_out, 100.0 * p.recall.popular,
                    100.0 * p.recall.repeat);
}

Json ToJson(const Profile& p) {
  Json object = Json::Object();
  object.Set("paths", p.output)
      .Set("model", p.paths.model.name)
      .Set("tokens", p.paths.tokens)
      .Set("keys", p.paths.table.keys())
      .Set("file_bytes", p.file_bytes)
      .Set("norms", p.norms)
      .Set("held_out_tokens", p.held_out);
  if (p.held_out == 0) return object;
  object.Set("recall_paths", p.recall.paths)
      .Set("recall_popular", p.recall.popular)
      .Set("recall_repeat", p.recall.repeat);
  return object;
}

Status Run(const ProfileOptions& options) {
  TRY_STATUS(CheckUsage(options));
  TRY(const Profile profile, Learn(options));
  Output output(STDOUT_FILENO);
  if (options.common.json) return output.Write(ToJson(profile).Dump() + "\n");
  return output.Write(Describe(profile));
}

}  // namespace

void AddProfile(CommandLine& line) {
  auto options = std::make_shared<ProfileOptions>();
  Flags profile = line.AddCommand("profile", "learn from text which experts follow which",
                                  [options] { return ExitCode(Run(*options)); });
  profile.Footer(
      "Writes MODEL.paths, from which the predictor 'paths' predicts the next layers' experts and "
      "by "
      "which the most popular ones are on a device first, and MODEL.norms for --importance "
      "score-norm. "
      "docs/paths-format.md describes the file.\n"
      "Examples: moestro profile model.gguf --text story.txt --text code.txt\n"
      "          moestro profile --trace story.trace -o model.gguf.paths");
  profile.Add("MODEL", options->model, "GGUF file; may be left out with --trace and -o");
  profile.Add("--text", options->texts, "text to learn from; several are learned together")
      .Type("FILE");
  profile.Add("--trace", options->traces, "routing recorded by 'moestro trace' instead")
      .Type("FILE");
  profile.Add("-n,--tokens", options->tokens, "at most this many tokens of each of them")
      .Positive();
  profile
      .Add("--norms-output", options->norms,
           "mean lengths of the experts' outputs, measured with --text (default: MODEL.norms, none "
           "with -o)")
      .Type("FILE");
  profile.Add("-o,--output", options->output, "the paths (default: MODEL.paths)").Type("FILE");
  AddCommonFlags(profile, options->common);
}

}  // namespace moestro
