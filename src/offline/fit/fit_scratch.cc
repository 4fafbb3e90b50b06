// SPDX-License-Identifier: MIT
#include "offline/fit/fit_scratch.h"

#include <filesystem>
#include <system_error>

#include "model/fitted.h"
#include "model/low_copies.h"
#include "model/model_file.h"
#include "offline/quantize/quantize.h"

namespace moestro {

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
