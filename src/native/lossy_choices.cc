// SPDX-License-Identifier: MIT
#include "native/lossy_choices.h"

#include <string>
#include <utility>

#include "learned/beside_model.h"
#include "learned/norms_file.h"

namespace moestro {
namespace {

Result<std::shared_ptr<const ExpertNorms>> ReadNorms(const OpenedModel& opened) {
  const std::string& model = opened.model.gguf.paths().front();
  const std::string path = opened.options.norms.empty() ? NormsBeside(model) : opened.options.norms;
  auto read = ReadNormsFor(opened.model.id, path);
  if (!read && read.error().code == Errc::kIo) {
    return Fail(Errc::kIo, "{}; measure them with 'moestro profile {} --text FILE'",
                read.error().message, model);
  }
  return read;
}

}  // namespace

Result<std::unique_ptr<LossyChoices>> LossyChoices::Create(const OpenedModel& opened,
                                                           const ExpertSlots& slots) {
  const bool has_low = opened.catalog.has_low();
  LossyOptions lossy = opened.options.lossy;
  const bool is_exact = lossy.is_exact(has_low);
  if (is_exact) lossy.importance = LossyOptions().importance;  // importance has no effect
  std::shared_ptr<const ExpertNorms> norms;
  if (lossy.importance == "score-norm") {
    TRY(norms, ReadNorms(opened));
  }
  std::unique_ptr<LossyChoices> choices(
      new LossyChoices(LossyChooser(lossy, opened.model.spec.router, has_low, std::move(norms))));
  if (is_exact && opened.little.misses == Misses::kRead) return choices;
  if (lossy.upgrades && has_low) {
    choices->upgrades_.emplace(opened.model.id.shape);
  }
  if (lossy.is_reproducible) choices->present_.emplace(slots.MakeResidentModel());
  return choices;
}

}  // namespace moestro
