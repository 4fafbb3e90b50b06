// SPDX-License-Identifier: MIT
#include "native/opened_model.h"

#include <algorithm>
#include <utility>

#include "engine/option_table.h"
#include "learned/beside_model.h"
#include "learned/learned_tables.h"
#include "native/catalog.h"

namespace moestro {
namespace {

SizeRequest SizesOf(const EngineOptions& options) {
  return {.ctx = options.ctx,
          .chunk = options.chunk,
          .sequences = options.sequences,
          .common_positions = options.common_positions,
          .positions = options.positions,
          .look_ahead = options.prefetch};
}

FileWatch WatchOver(const OpenedModel& opened) {
  std::vector<WatchedFile> files;
  opened.model.gguf.AddTo(files);
  if (opened.low) opened.low->gguf.AddTo(files);
  return {std::move(files), opened.options.clock};
}

}  // namespace

Result<std::unique_ptr<OpenedModel>> OpenedModel::Open(const ModelFile& model,
                                                       const EngineOptions& options) {
  TRY_STATUS(CheckOptions(options));
  if (options.predicts && !options.has_exact_experts()) {
    return Fail(Errc::kInvalidRequest,
                "tokens are predicted where every expert is computed as it is");
  }
  auto opened = std::make_unique<OpenedModel>(model, options);
  TRY(opened->policies,
      PolicySource::Find(options.policy, options.policy_file, model.gguf.paths().front()));
  opened->catalog = MakeCatalog(model.weights);
  opened->catalog.n_encoder = model.id.shape.n_encoder;
  TRY(opened->remembers, MemoryShape::Of(model.spec, options.kv_type));
  if (options.capacity > 0 && !model.spec.encoder) {
    return Fail(Errc::kInvalidRequest, "--capacity: {} has no encoder", model.spec.arch_name);
  }
  TRY_STATUS(opened->OpenLow());
  TRY_STATUS(opened->ChoosePasses());
  TRY(opened->plan, EnginePlan::Of(SizesOf(options), model.spec, opened->remembers));
  TRY_STATUS(opened->ChoosePredictor());
  TRY_STATUS(opened->OpenReaders());
  return opened;
}

Status OpenedModel::PlanFor(uint32_t chunk) {
  SizeRequest sizes = SizesOf(options);
  sizes.chunk = chunk;
  TRY(plan, EnginePlan::Of(sizes, model.spec, remembers));
  return {};
}

Status OpenedModel::OpenLow() {
  TRY_STATUS(CheckLossy(options.lossy, !options.low.empty()));
  if (options.low.empty()) return {};
  TRY(low, OpenLowCopies(options.low, model));
  AddLowCopies(*low, static_cast<uint32_t>(model.gguf.paths().size()), catalog);
  return {};
}

Status OpenedModel::ChoosePasses() {
  if (!options.little.is_on()) return {};
  TRY(const uint32_t used,
      CheckLittle(options.little, model.spec.router.n_used, catalog.has_low()));
  // A first pass would keep no token.
  if (!options.little.fallback_share && options.little.gamma >= 1.0) return {};
  little = {.n_used = used, .misses = options.little.misses};
  return {};
}

Status OpenedModel::ChoosePredictor() {
  predictor = {.name = plan.look_ahead == 0 ? "none" : options.predictor};
  if (predictor.name != "paths") return {};
  const std::string& path = model.gguf.paths().front();
  auto paths = ReadPathsFor(model.id, options.paths.empty() ? PathsBeside(path) : options.paths);
  if (!paths && paths.error().code == Errc::kIo) {
    return Fail(Errc::kIo, "{}; learn them with 'moestro profile {} --text FILE'",
                paths.error().message, path);
  }
  TRY(predictor.paths, std::move(paths));
  return {};
}

Status OpenedModel::OpenReaders() {
  TRY(CpuDevice device, CpuDevice::Open(options.threads));
  cpu = std::make_unique<CpuDevice>(std::move(device));
  TRY(kernels, FindFormKernels(catalog, options.own_kernels && !options.device.remote.is_exact()));
  TRY(const ReaderKind kind, ParseReaderKind(options.reader));
  TRY(reader, OpenReader({.kind = kind}, paths()));
  if (options.wrap_reader) reader = options.wrap_reader(std::move(reader));
  if (model.weights.ngram_table != nullptr) {  // its reads wait for no expert's
    constexpr unsigned kThreads = 32;          // of the pread pool: each waits for one row
    TRY(table_reader,
        OpenReader({.kind = kind, .queue_depth = TableRows::kReads, .threads = kThreads}, paths()));
    if (options.wrap_reader) table_reader = options.wrap_reader(std::move(table_reader));
  }
  watch = WatchOver(*this);
  return watch.Look();  // the reader has opened the files by name a second time
}

std::optional<TableRows::Sizes> OpenedModel::TableSizes() const {
  const TensorInfo* const table = model.weights.ngram_table;
  if (table == nullptr) return std::nullopt;
  return TableRows::Sizes{.table = table->extent,
                          .row_bytes = table->extent.length / static_cast<uint64_t>(table->ne[1]),
                          .rows_at_once = plan.chunk * model.spec.ngrams->n_heads()};
}

ggml_type OpenedModel::table_type() const {
  const TensorInfo* const table = model.weights.ngram_table;
  return table != nullptr ? table->type : GGML_TYPE_F32;
}

uint64_t OpenedModel::position_bytes() const {
  const uint64_t recent = plan.recent.window > 0 ? remembers.recent_bytes() : 0;
  constexpr uint32_t kMany = 1024;  // fill pools of each size
  const uint64_t of_pools = remembers.pool_bytes(kMany) / kMany;
  return std::max<uint64_t>(remembers.position_bytes() - recent + of_pools, 1);
}

uint64_t OpenedModel::state_bytes() const {
  if (plan.recent.window == 0) return remembers.state_bytes();
  return remembers.state_bytes() + plan.recent.window * remembers.recent_bytes();
}

std::vector<std::string> OpenedModel::paths() const {
  std::vector<std::string> paths = model.gguf.paths();
  if (low) paths.append_range(low->gguf.paths());
  return paths;
}

}  // namespace moestro
