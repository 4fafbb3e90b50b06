// SPDX-License-Identifier: MIT
#include "offline/record/imatrix.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <utility>

#include "engine/append.h"
#include "model/expert_tensors.h"
#include "model/model_file.h"
#include "native/native_engine.h"
#include "offline/gguf_output.h"
#include "offline/record/imatrix_file.h"
#include "offline/record/text_parts.h"

namespace moestro {
namespace {

void AddSquares(std::span<const float> values, std::span<float> sums) {
  for (size_t i = 0; i < values.size(); ++i) sums[i] += values[i] * values[i];
}

// A tensor that holds experts, remembered until the engine, which takes the file, has run.
struct ExpertPlace {
  std::string name;
  Matrix matrix = Matrix::kGate;
  uint32_t layer = 0;  // of those with experts
  uint32_t first_expert = 0;
  uint32_t n_experts = 1;
};

Result<std::vector<ExpertPlace>> PlacesOf(const GgufFile& file, const ModelSpec& spec) {
  std::vector<ExpertPlace> places;
  for (uint32_t layer = 0; layer < spec.n_layer(); ++layer) {
    if (!spec.has_experts(layer)) continue;
    TRY(const auto tensors, FindExpertTensors(file, spec, layer, "convert the model again"));
    for (const ExpertTensor& tensor : tensors) {
      places.push_back({.name = tensor.info->name,
                        .matrix = tensor.matrix,
                        .layer = spec.expert_layers_before(layer),
                        .first_expert = tensor.first_expert,
                        .n_experts = tensor.n_experts});
    }
  }
  return places;
}

// Gate and up have the same inputs.
std::vector<ImatrixEntry> EntriesOf(std::span<const ExpertPlace> places, const ModelSpec& spec,
                                    const ImatrixSums& sums) {
  const std::vector<uint32_t> widths = spec.expert_widths();
  std::vector<ImatrixEntry> entries;
  for (const ExpertPlace& place : places) {
    const bool is_down = place.matrix == Matrix::kDown;
    const uint32_t n_in = is_down ? widths[place.layer] : spec.n_embd_expert();
    const auto all = is_down ? sums.products(place.layer) : sums.inputs(place.layer);
    entries.push_back(
        {.name = place.name,
         .n_in = n_in,
         .sums = all.subspan(size_t{place.first_expert} * n_in, size_t{place.n_experts} * n_in),
         .counts = sums.counts(place.layer).subspan(place.first_expert, place.n_experts)});
  }
  return entries;
}

std::vector<std::string> NamesOf(std::span<const NamedTokens> texts) {
  std::vector<std::string> names;
  for (const NamedTokens& text : texts) names.push_back(text.name);
  return names;
}

ImatrixReport ReportOf(const ModelSpec& spec, const ImatrixSums& sums, uint64_t tokens) {
  ImatrixReport report{.tokens = tokens, .experts = spec.router.n_expert, .unvisited = {}};
  for (uint32_t l = 0; l < spec.n_expert_layers(); ++l) {
    report.unvisited.push_back(static_cast<uint32_t>(std::ranges::count(sums.counts(l), 0.0F)));
  }
  return report;
}

}  // namespace

ImatrixSums::ImatrixSums(const ModelSpec& spec)
    : n_embd_(spec.n_embd_expert()), n_ff_(spec.expert_widths()), layers_(spec.n_expert_layers()) {
  const size_t experts = spec.router.n_expert;
  for (size_t l = 0; l < layers_.size(); ++l) {
    Layer& layer = layers_[l];
    layer.inputs.resize(experts * n_embd_);
    layer.products.resize(experts * n_ff_[l]);
    layer.counts.resize(experts);
  }
}

uint64_t ImatrixSums::BytesFor(const ModelSpec& spec) {
  uint64_t values = 0;  // of one expert in each layer
  for (const uint32_t n_ff : spec.expert_widths()) values += n_ff + spec.n_embd_expert() + 1;
  return values * spec.router.n_expert * sizeof(float);
}

void ImatrixSums::Add(const SeenExperts& seen) {
  Layer& layer = layers_[seen.plan.layer.value];
  const size_t n_ff = n_ff_[seen.plan.layer.value];
  for (const PlannedExpert& expert : seen.plan.experts) {
    const size_t e = expert.key.expert.value;
    const auto inputs = std::span(layer.inputs).subspan(e * n_embd_, n_embd_);
    const auto products = std::span(layer.products).subspan(e * n_ff, n_ff);
    for (uint32_t i = 0; i < expert.n_pairs; ++i) {
      const size_t pair = expert.first_pair + i;
      const size_t row = seen.plan.row_of[pair];
      AddSquares(seen.inputs.subspan(row * n_embd_, n_embd_), inputs);
      AddSquares(seen.products.subspan(pair * n_ff, n_ff), products);
    }
    layer.counts[e] += static_cast<float>(expert.n_pairs);
  }
}

bool ImatrixSums::is_finite() const {
  const auto all_finite = [](std::span<const float> values) {
    return std::ranges::all_of(values, [](float v) { return std::isfinite(v); });
  };
  return std::ranges::all_of(layers_, [&](const Layer& layer) {
    return all_finite(layer.inputs) && all_finite(layer.products);
  });
}

Result<ImatrixReport> MakeImatrix(const ImatrixOptions& options) {
  TRY(ModelFile model, ModelFile::Open(options.model));
  TRY_STATUS(CheckIsNotFitted(model.weights.fit, options.model, "measure"));
  const ModelSpec spec = model.spec;
  TRY_STATUS(CheckIsNoInput(options.path, model.gguf.paths()));
  TRY_STATUS(CheckMayWrite(options.path, true));
  TRY(const auto texts, TokenizeTexts(options.texts, options.tokens, options.engine, model.gguf));
  TRY(const auto places, PlacesOf(model.gguf, spec));
  EngineOptions engine_options = options.engine;
  engine_options.caller_bytes += ImatrixSums::BytesFor(spec);
  TRY(const std::unique_ptr<NativeEngine> engine,
      NativeEngine::Open(std::move(model), engine_options, options.progress));

  ImatrixSums sums(spec);
  engine->SetExpertObserver([&sums](const SeenExperts& seen) { sums.Add(seen); });
  Sequence sequence = engine->NewSequence();
  ImatrixInfo info{.datasets = NamesOf(texts), .chunk_count = 0, .chunk_size = engine->n_ctx()};
  uint64_t tokens = 0;
  const auto evaluate = [&](std::span<const Token> part) -> Status {
    sequence.CutBack(0);
    if (auto done = Append(*engine, sequence, part); !done) {
      return std::unexpected(std::move(done).error());
    }
    tokens += part.size();
    ++info.chunk_count;
    return {};
  };
  TRY_STATUS(ForEachPart(texts, engine->n_ctx(), options.progress, evaluate));
  if (tokens == 0) return Fail(Errc::kInvalidRequest, "no token to learn from; give a longer text");
  if (!sums.is_finite()) {
    return Fail(Errc::kInvalidFile, "{} computes what is no number; fetch it again", options.model);
  }
  TRY_STATUS(WriteImatrix(options.path, info, EntriesOf(places, spec, sums)));
  return ReportOf(spec, sums, tokens);
}

}  // namespace moestro
