// SPDX-License-Identifier: MIT
#include "hosted/hosted_plan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "learned/beside_model.h"
#include "learned/learned_tables.h"

namespace moestro {
namespace {

// Default number of a prompt's rows that are computed together.
constexpr uint32_t kUsualChunk = 512;
// Logits of so many bytes are computed at a time.
constexpr uint64_t kLogitsBytes = uint64_t{4} << 20;
// Logits that a context for embeddings has room for, and rows of a chunk that need not be larger.
constexpr uint64_t kEmbeddedLogits = uint64_t{64} << 20;
constexpr uint64_t kFewestEmbedded = 32;
// libllama's limit.
constexpr uint32_t kMostPlaces = 256;

void SayChunk(const EngineOptions& options, uint32_t usual, uint32_t chunk,
              const PlanForChunk& plan) {
  std::string enough = "a larger --cache";
  if (!options.cache) {
    EngineOptions smallest = options;
    smallest.takes_smallest = true;
    const Result<PlannedMemory> planned = plan(smallest, usual);
    if (planned) enough = Format("--ram {}M", planned->plan.smallest / kMiB);
  }
  LogWarning(
      "prompts are computed in chunks of {} rows, where {} are usual, since slots hold no more: "
      "answers are those of --chunk {}, to the bit, and slower; {} has room for the usual chunk",
      chunk, usual, chunk, enough);
}

}  // namespace

Status CheckHosted(const EngineOptions& options) {
  const auto needs_native = [](std::string_view what) {
    return Fail(Errc::kUnsupported,
                "{} needs the native engine; this model runs on the hosted one (libllama's forward "
                "pass), which computes every expert as it is, on the CPU",
                what);
  };
  if (!options.low.empty()) return needs_native("--low");
  if (!options.lossy.is_exact(false)) return needs_native("a cheaper miss");
  if (options.little.is_on()) return needs_native("--little");
  if (options.check_every > 0) return needs_native("--kl");
  if (options.device.name != "auto" && options.device.name != "cpu") {
    return needs_native("--device");
  }
  if (options.sequences == 0) {
    return Fail(Errc::kInvalidRequest,
                "room for 0 sequences holds no prompt; ask for at least one");
  }
  if (options.sequences > kMostTexts) {
    return Fail(Errc::kInvalidRequest,
                "the hosted engine runs at most {} texts at a time, not {}; lower --parallel",
                kMostTexts, options.sequences);
  }
  return {};
}

Result<uint32_t> HostedContext(const GgufFile& file, const EngineOptions& options) {
  TRY(const std::optional<std::string> arch, file.FindString("general.architecture"));
  TRY(const std::optional<uint64_t> trained, file.FindUint(arch.value_or("") + ".context_length"));
  const uint64_t n_ctx = std::min<uint64_t>(options.ctx, trained.value_or(options.ctx));
  if (n_ctx > 0) return static_cast<uint32_t>(n_ctx);
  return Fail(Errc::kInvalidRequest, "a context of 0 tokens holds no prompt; set --ctx");
}

ContextSizes SizesOf(uint32_t n_ctx, uint32_t chunk, uint32_t sequences, uint64_t n_vocab) {
  ContextSizes sizes;
  sizes.chunk = std::max(std::min(chunk > 0 ? chunk : kUsualChunk, n_ctx), sequences);
  sizes.places = std::min(4 * sequences + 2, kMostPlaces);
  sizes.places_of_states = std::min(2 * sequences + 4, kMostPlaces);
  const uint64_t of_logits = kLogitsBytes / (std::max<uint64_t>(n_vocab, 1) * sizeof(float));
  // libllama's context needs room for a row of each of its sequences, and ends the process
  // otherwise.
  sizes.outputs =
      static_cast<uint32_t>(std::max({std::min<uint64_t>(of_logits, sizes.chunk),
                                      uint64_t{sizes.places}, uint64_t{sizes.places_of_states}}));
  return sizes;
}

ContextSizes SizesForEmbeddings(uint32_t n_ctx, uint32_t chunk, const EmbeddingForm& form,
                                uint64_t n_vocab) {
  ContextSizes sizes;
  sizes.chunk = n_ctx;
  if (form.may_split()) {
    // libllama has room for logits of every row.
    const uint64_t of_logits = kEmbeddedLogits / (std::max<uint64_t>(n_vocab, 1) * sizeof(float));
    const uint64_t usual = std::clamp<uint64_t>(of_logits, kFewestEmbedded, kUsualChunk);
    sizes.chunk = std::min(chunk > 0 ? chunk : static_cast<uint32_t>(usual), n_ctx);
  }
  sizes.places = sizes.places_of_states = std::min(sizes.chunk, kMostEmbedded);
  sizes.outputs = sizes.chunk;
  return sizes;
}

size_t TextsOfChunk(std::span<const std::span<const Token>> texts, uint32_t chunk) {
  size_t n = 0;
  size_t rows = 0;
  for (; n < std::min<size_t>(texts.size(), kMostEmbedded); ++n) {
    rows += texts[n].size();
    if (rows > chunk) break;
  }
  return std::max<size_t>(n, 1);
}

ExpertCatalog CatalogOf(std::span<const ExpertGroup> groups) {
  ExpertCatalog catalog;
  for (uint16_t g = 0; g < groups.size(); ++g) {
    const ExpertGroup& group = groups[g];
    CopyForm form{.n_embd = static_cast<uint32_t>(group.matrices.front().info->ne[0]),
                  .n_ff = static_cast<uint32_t>(group.matrices.front().info->ne[1])};
    for (uint16_t e = 0; e < group.n_expert; ++e) {
      std::array<Extent, kMatrices> slices{};
      for (size_t m = 0; m < group.matrices.size(); ++m) {
        const TensorInfo& info = *group.matrices[m].info;
        const uint64_t length = info.extent.length / group.n_expert;
        slices[m] = {
            .file = info.extent.file, .offset = info.extent.offset + e * length, .length = length};
        form.types[m] = info.type;
      }
      catalog.Add(ExpertLayerId{g}, ExpertId{e}, form, slices);
    }
  }
  return catalog;
}

MoeShape ShapeOf(std::span<const ExpertGroup> groups) {
  MoeShape shape{.n_layer = static_cast<uint32_t>(groups.size())};
  for (const ExpertGroup& group : groups) {
    shape.n_expert = std::max(shape.n_expert, group.n_expert);
    shape.n_used = std::max(shape.n_used, group.n_used);
  }
  return shape;
}

std::vector<uint64_t> SlotsForRows(const LearnedGraph& graph, const ExpertCatalog& catalog,
                                   uint32_t rows) {
  std::vector<uint64_t> slots(catalog.pools.size(), 0);
  for (size_t g = 0; g < graph.groups.size(); ++g) {
    const ExpertGroup& group = graph.groups[g];
    const uint32_t pool = catalog.layers[g].pools.front();
    const uint64_t chosen = std::min<uint64_t>(group.n_expert, uint64_t{rows} * group.n_used);
    // Groups that are in use together may share a pool.
    slots[pool] =
        std::max(slots[pool], std::min(chosen * graph.most_open, catalog.pools[pool].experts));
  }
  return slots;
}

Result<ChunkPlan> PlanChunk(const EngineOptions& options, uint32_t usual,
                            const PlanForChunk& plan) {
  const bool may_shrink = options.chunk == 0;
  uint32_t chunk = options.takes_smallest && may_shrink ? 1 : usual;
  Result<PlannedMemory> planned = plan(options, chunk);
  while (!planned && planned.error().code == Errc::kInvalidRequest && may_shrink && chunk > 1) {
    chunk = std::bit_floor(chunk - 1);
    planned = plan(options, chunk);
  }
  if (!planned && !may_shrink && chunk > 1) {
    return Fail(planned.error().code, "{}; it holds the experts of --chunk {}: fewer need less",
                planned.error().message, chunk);
  }
  if (!planned) return std::unexpected(std::move(planned).error());
  if (chunk < usual && !options.takes_smallest) SayChunk(options, usual, chunk, plan);
  return ChunkPlan{.chunk = chunk, .memory = *std::move(planned)};
}

Result<PredictorChoice> HostedPredictor(const EngineOptions& options, const EngineFacts& facts,
                                        const std::string& model) {
  TRY_STATUS(CheckPredictorName(options.predictor));
  PredictorChoice choice{.name = options.predictor};
  const bool is_blind = choice.name == "next-router" && facts.max_look_ahead == 0;
  if (options.prefetch == 0 || facts.id.shape.n_layer < 2 || is_blind) choice.name = "none";
  if (choice.name != "paths") return choice;
  TRY(choice.paths,
      ReadPathsFor(facts.id, options.paths.empty() ? PathsBeside(model) : options.paths));
  return choice;
}

size_t EvenRows(std::span<const BatchRow> rows) {
  const auto run_from = [&](size_t first) {
    size_t n = 1;
    while (first + n < rows.size() && rows[first + n].sequence == rows[first].sequence) ++n;
    return n;
  };
  const size_t length = run_from(0);
  size_t n = length;
  while (n < rows.size() && run_from(n) == length) {
    const bool is_known =
        std::ranges::contains(rows.first(n), rows[n].sequence, &BatchRow::sequence);
    if (is_known) break;
    n += length;
  }
  return n;
}

}  // namespace moestro
