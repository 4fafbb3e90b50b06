// SPDX-License-Identifier: MIT
// Holds what lossy decisions depend on: the importance of an expert for a row, the experts that
// count as present, and the low copies that are replaced later.
//
// Thread rule: the engine thread.
#pragma once

#include <memory>
#include <optional>

#include "base/result.h"
#include "decide/layer/layer_protocol.h"
#include "decide/layer/lossy_chooser.h"
#include "decide/layer/upgrades.h"
#include "decide/slots/resident_model.h"
#include "native/make_slots.h"
#include "native/opened_model.h"

namespace moestro {

class LossyChoices {
 public:
  // Reads norms if importance goes by them. kIo, kInvalidFile, kInvalidRequest.
  static Result<std::unique_ptr<LossyChoices>> Create(const OpenedModel& opened,
                                                      const ExpertSlots& slots);
  LossyChoices(const LossyChoices&) = delete;
  LossyChoices& operator=(const LossyChoices&) = delete;

  // For a LayerProtocol, which this must outlive.
  LossyParts parts() {
    return {.chooser = &chooser_,
            .choices = present_ ? &*present_ : nullptr,
            .upgrades = upgrades_ ? &*upgrades_ : nullptr};
  }
  // Choices follow a model of memory, so that they do not depend on timing.
  bool are_repeatable() const { return present_.has_value(); }

 private:
  explicit LossyChoices(LossyChooser chooser) : chooser_(std::move(chooser)) {}

  LossyChooser chooser_;
  std::optional<ResidentModel> present_;  // nullopt: choices are exact, or need not be reproducible
  std::optional<Upgrades> upgrades_;      // if upgrades are on
};

}  // namespace moestro
