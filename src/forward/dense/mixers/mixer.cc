// SPDX-License-Identifier: MIT
#include "forward/dense/mixers/mixer.h"

#include <variant>

#include "forward/dense/mixers/attention_mixer.h"

namespace moestro {

Result<std::unique_ptr<Mixer>> MakeMixer(const MixerParts& parts, const MixerSpec& spec,
                                         const MakeStateMixer& make_state) {
  if (const auto* attention = std::get_if<AttentionSpec>(&spec)) {
    return MakeAttentionMixer(parts, *attention);
  }
  const auto& state = std::get<StateSpec>(spec);
  if (parts.device != nullptr) {
    return Fail(Errc::kDevice, "states of {} layers stay in memory", state.kind);
  }
  if (!make_state) return Fail(Errc::kUnsupported, "no mixer computes '{}'", state.kind);
  return make_state(parts, state);
}

}  // namespace moestro
