// SPDX-License-Identifier: MIT
#include "decide/policy_tuning.h"

#include <algorithm>
#include <cmath>

#include "base/format.h"

namespace moestro {
namespace {

std::string Describe(const TunedModel& model) {
  std::string text = Format("{} ({} layers, {} of {} experts",
                            model.name.empty() ? "a model without a name" : model.name,
                            model.n_layer, model.n_used, model.n_expert);
  if (model.id != 0) text += Format(", fingerprint {:016x}", model.id);
  return text + ")";
}

}  // namespace

Result<PolicyChoice> ChoiceFor(const PolicyTuning& tuning, const TunedModel& model,
                               uint64_t slots) {
  const TunedModel& tuned = tuning.model;
  const bool has_its_shape = tuned.n_layer == model.n_layer && tuned.n_expert == model.n_expert &&
                             tuned.n_used == model.n_used;
  const bool may_be_it = tuned.id == 0 || model.id == 0 || tuned.id == model.id;
  if (!has_its_shape || !may_be_it) {
    return Fail(Errc::kInvalidRequest, "tuned for {}, but the model is {}", Describe(tuned),
                Describe(model));
  }
  const auto distance = [slots](const TunedSize& size) {
    return std::abs(std::log(static_cast<double>(size.slots) / static_cast<double>(slots)));
  };
  return std::ranges::min_element(tuning.sizes, {}, distance)->choice;
}

}  // namespace moestro
