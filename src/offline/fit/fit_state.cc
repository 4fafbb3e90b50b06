// SPDX-License-Identifier: MIT
#include "offline/fit/fit_state.h"

#include <filesystem>
#include <span>
#include <system_error>

#include "base/input_file.h"
#include "base/json.h"
#include "base/output_file.h"
#include "model/expert_tensors.h"
#include "model/low_copies.h"
#include "model/model_file.h"
#include "offline/quantize.h"

namespace moestro {

Result<FitState> FitState::Open(const std::string& path, const std::string& key) {
  FitState state(path, key);
  constexpr size_t kMostBytes = size_t{64} << 20;
  const std::optional<std::string> text = ReadSmallFile(path, kMostBytes);
  if (!text) return state;
  const auto json = Json::Parse(*text);
  if (!json) return state;
  const auto made_for = json->Find("key");
  const auto measured = json->Find("measured");
  if (!made_for || made_for->text() != key || !measured) return state;
  for (const std::string& name : measured->keys()) {
    const auto pair = measured->Find(name);
    const auto value = pair->At(0);
    const auto error = pair->At(1);
    if (!value || !value->number()) continue;
    Estimate estimate{.value = *value->number()};
    if (error && error->number()) estimate.error = *error->number();
    state.measured_[name] = estimate;
  }
  return state;
}

std::optional<Estimate> FitState::Find(const std::string& name) const {
  const auto found = measured_.find(name);
  return found != measured_.end() ? std::optional(found->second) : std::nullopt;
}

Status FitState::Add(const std::string& name, const Estimate& measured) {
  measured_[name] = measured;
  Json all = Json::Object();
  for (const auto& [each, estimate] : measured_) {
    Json pair = Json::Array();
    pair.Push(estimate.value).Push(estimate.error);  // not known: null
    all.Set(each, std::move(pair));
  }
  Json json = Json::Object();
  json.Set("key", key_).Set("measured", std::move(all));
  const std::string text = json.Dump() + "\n";
  TRY(OutputFile file, OutputFile::Create(OutputPath::OfOwn(path_)));
  TRY_STATUS(file.Write(std::as_bytes(std::span(text))));
  TRY_STATUS(file.Publish());
  file.Keep();
  return {};
}

std::string FitScratch::File(std::string_view what) {
  files_.push_back(base_ + std::string(what));
  return files_.back();
}

// The model with all experts at a width.
Result<std::string> FitScratch::ModelAt(const Width& width, size_t n_experts) {
  if (!width) return request_.model;
  const std::string path = File(width->text() + ".model");
  if (ModelFile::Open(path)) return path;  // of an earlier run
  TRY_STATUS(WriteFitted({.model = request_.model,
                          .high = width,
                          .low = {},
                          .widths = std::string(n_experts, FitHeader::kHigh),
                          .imatrix = request_.imatrix,
                          .path = path,
                          .threads = ResolveThreads(request_.engine.threads),
                          .overwrite = true,
                          .weights_folder = request_.engine.weights_folder}));
  return path;
}

Result<std::string> FitScratch::CopiesAt(const LowTypes& types) {
  const std::string path = File(types.text() + ".low");
  TRY(const ModelFile model, ModelFile::Open(request_.model));
  if (OpenLowCopies(path, model)) return path;  // of an earlier run
  const auto progress = [&](uint64_t done, uint64_t all) {
    if (request_.progress) request_.progress("quantising", done, all);
  };
  TRY_STATUS(WriteLowCopies({.model = request_.model,
                             .types = types,
                             .imatrix = request_.imatrix,
                             .path = path,
                             .threads = ResolveThreads(request_.engine.threads),
                             .overwrite = true,
                             .weights_folder = request_.engine.weights_folder,
                             .progress = progress}));
  return path;
}

void FitScratch::Remove() const {
  std::error_code ignored;
  for (const std::string& path : files_) std::filesystem::remove(path, ignored);
}

}  // namespace moestro
