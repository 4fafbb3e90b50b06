// SPDX-License-Identifier: MIT
#include "offline/record/imatrix.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "base/terminal.h"
#include "engine/append.h"
#include "model/model_file.h"
#include "native/find_weights.h"
#include "native/native_engine.h"
#include "offline/gguf_output.h"
#include "offline/record/imatrix_file.h"
#include "offline/record/imatrix_sums.h"
#include "offline/record/record_texts.h"

namespace moestro {
namespace {

std::vector<std::string> NamesOf(std::span<const NamedTokens> texts) {
  std::vector<std::string> names;
  for (const NamedTokens& text : texts) names.push_back(text.name);
  return names;
}

ImatrixReport ReportOf(const ImatrixRun& run) {
  const ImatrixShape& shape = run.sums.shape();
  ImatrixReport report{.tokens = run.tokens, .experts = shape.n_experts, .unvisited = {}};
  for (size_t l = 0; l < shape.n_ff.size(); ++l) {
    report.unvisited.push_back(
        static_cast<uint32_t>(std::ranges::count(run.sums.layer(l).counts, uint64_t{0})));
  }
  return report;
}

Status CheckFinite(const ImatrixRun& run, const std::string& model) {
  if (run.sums.is_finite()) return {};
  return Fail(Errc::kInvalidFile, "{} computes what is no number; fetch it again", model);
}

// Texts as windows, all windows or those of the requested shard.
struct TextsToRead {
  CutTexts text;
  std::optional<ShardInfo> shard;
};

Result<TextsToRead> ReadForImatrix(const ImatrixOptions& options, const ModelFile& model) {
  if (options.shard) TRY_STATUS(CheckShardable(options.engine));
  TextsToRead read;
  const uint32_t n_ctx = std::min(options.engine.ctx, model.spec.n_ctx_train);
  TRY(read.text,
      ReadTextParts(options.texts, options.tokens, options.engine,
                    {.file = model.gguf, .encoder = model.spec.encoder, .n_ctx = n_ctx}));
  if (read.text.parts.empty()) {
    return Fail(Errc::kInvalidRequest, "no token to learn from; give a longer text");
  }
  if (!options.shard) return read;
  TRY(ShardInfo info, TakeShard({.command = ShardOf::kImatrix, .shard = *options.shard},
                                read.text.texts, read.text.parts));
  info.model = model.id.name;
  info.fingerprint = model.id.fingerprint;
  TRY(info.weights, FindWeightsId(model, options.engine.weights_folder));
  info.settings = SettingsText(options.engine, {.n_ctx = n_ctx});
  read.shard = std::move(info);
  return read;
}

// Runs the model on the windows.
Result<ImatrixRun> RunOnTexts(const ImatrixOptions& options, ModelFile model,
                              const TextsToRead& read) {
  TRY(auto places, PlacesOf(model.gguf, model.spec));
  const ImatrixShape shape = ImatrixShape::Of(model.spec);
  EngineOptions engine_options = options.engine;
  engine_options.caller_bytes += ImatrixSums::BytesFor(shape);
  TRY(const std::unique_ptr<NativeEngine> engine,
      NativeEngine::Open(std::move(model), engine_options, options.progress));
  ImatrixRun run{.info = {.datasets = NamesOf(read.text.texts), .chunk_size = engine->n_ctx()},
                 .places = std::move(places),
                 .sums = ImatrixSums(shape)};
  engine->SetExpertObserver([&run](const SeenExperts& seen) { run.sums.Add(seen); });
  Sequence sequence = engine->NewSequence();
  const auto evaluate = [&](std::span<const Token> part) -> Status {
    sequence.CutBack(0);
    TRY_STATUS(Append(*engine, sequence, part));
    run.tokens += part.size();
    ++run.info.chunk_count;
    return {};
  };
  TRY_STATUS(ForEachPart(read.text.texts, read.text.parts, options.progress, evaluate));
  engine->SetExpertObserver({});
  return run;
}

}  // namespace

Result<ImatrixReport> MakeImatrix(const ImatrixOptions& options) {
  TRY(ModelFile model, ModelFile::Open(options.model));
  TRY_STATUS(CheckIsNotFitted(model.weights.fit, options.model, "measure"));
  OutputPath path = options.path;
  path.Spare(model.gguf.paths());
  path.Spare(options.texts);
  TRY_STATUS(CheckMayWrite(path, true));
  TRY(const TextsToRead read, ReadForImatrix(options, model));
  if (read.text.parts.empty()) {  // the shard has no windows
    TRY_STATUS(WriteShard(path, *read.shard, {}));
    return ImatrixReport{.shard = read.shard};
  }
  TRY(const ImatrixRun run, RunOnTexts(options, std::move(model), read));
  TRY_STATUS(CheckFinite(run, options.model));
  if (read.shard) {
    TRY_STATUS(WriteImatrixShard(path, *read.shard, run));
    return ImatrixReport{.shard = read.shard};
  }
  TRY_STATUS(WriteImatrix(path, run.info, EntriesOf(run.places, run.sums)));
  return ReportOf(run);
}

Result<ImatrixReport> MergeImatrices(std::span<const FoundShard> shards, const OutputPath& path) {
  TRY(const ImatrixRun run, MergeImatrix(shards));
  TRY_STATUS(CheckFinite(run, Printable(shards.front().info.model)));
  TRY_STATUS(WriteImatrix(path, run.info, EntriesOf(run.places, run.sums)));
  return ReportOf(run);
}

}  // namespace moestro
