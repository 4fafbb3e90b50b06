// SPDX-License-Identifier: MIT
// What an engine opens and prepares when misses may be cheaper than exact.
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "learned/beside_model.h"
#include "learned/norms_file.h"
#include "native/catalog.h"
#include "native/native_impl.h"

namespace moestro {

Status NativeEngine::Impl::OpenLow() {
  TRY_STATUS(CheckLossy(options.lossy, !options.low.empty()));
  if (!(options.low_share > 0.0 && options.low_share < 1.0)) {
    return Fail(Errc::kUsage, "--low-share is {}; it lies between 0 and 1", options.low_share);
  }
  if (options.low.empty()) return {};
  TRY(low, OpenLowCopies(options.low, model));
  AddLowCopies(*low, static_cast<uint32_t>(model.gguf.paths().size()), catalog);
  return {};
}

std::vector<std::string> NativeEngine::Impl::AllPaths() const {
  std::vector<std::string> paths = model.gguf.paths();
  if (low) paths.append_range(low->gguf.paths());
  return paths;
}

FileWatch NativeEngine::Impl::WatchOverFiles() const {
  std::vector<WatchedFile> files;
  const auto add = [&](const GgufFile& gguf) {
    for (size_t i = 0; i < gguf.paths().size(); ++i) {
      files.push_back({.path = gguf.paths()[i], .stamp = gguf.stamps()[i]});
    }
  };
  add(model.gguf);
  if (low) add(low->gguf);
  return {std::move(files), options.clock};
}

Status NativeEngine::Impl::PrepareLossy() {
  const bool is_exact = options.lossy.is_exact(catalog.has_low());
  LossyOptions lossy = options.lossy;
  if (is_exact) lossy.importance = LossyOptions().importance;  // is not asked for
  std::shared_ptr<const ExpertNorms> norms;
  if (lossy.importance == "score-norm") {
    const std::string path =
        options.norms.empty() ? NormsBeside(model.gguf.paths().front()) : options.norms;
    auto read = ReadNormsFor(model.id, path);
    if (!read && read.error().code == Errc::kIo) {
      return Fail(Errc::kIo, "{}; measure them with 'moestro profile {} --text FILE'",
                  read.error().message, model.gguf.paths().front());
    }
    if (!read) return std::unexpected(read.error());
    norms = *read;
  }
  chooser.emplace(lossy, model.spec.router, catalog.has_low(), std::move(norms));
  if (is_exact && little.misses == Misses::kRead) return {};
  if (options.lossy.upgrades && catalog.has_low()) {
    upgrades.emplace(model.id.shape.n_layer, model.id.shape.n_expert);
  }
  if (!options.lossy.is_reproducible) return {};
  choices.emplace(MakeResidentModel());
  return {};
}

Status NativeEngine::Impl::PrepareCheck() {
  if (!checks()) return {};
  TRY(exact_check, ExactCheck::Create({.spec = model.spec,
                                       .shape = model.id.shape,
                                       .catalog = catalog,
                                       .kernels = kernels,
                                       .layers = layer_forms,
                                       .graph = *graph,
                                       .buffers = buffers,
                                       .team = *team,
                                       .queue = *queue,
                                       .clock = options.clock,
                                       .stop = stop}));
  return {};
}

ResidentModel NativeEngine::Impl::MakeResidentModel() const {
  std::vector<SlotTable> tables;
  for (const uint64_t n : slots) {
    const PolicyShape shape{
        .slots = n, .layers = model.id.shape.n_layer, .experts = model.id.shape.n_expert};
    auto chosen = MakePolicy(policy);
    CHECK(chosen.has_value());  // residency has one
    tables.emplace_back(shape, *std::move(chosen));
  }
  // Its own catalog: a caller may keep the model while a restart replaces the engine's.
  return {std::move(tables), [its = catalog](ExpertKey key) { return its.copy(key).pool; }};
}

ResidentModel NativeEngine::MakeResidentModel() const { return impl_->MakeResidentModel(); }

}  // namespace moestro
