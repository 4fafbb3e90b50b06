// SPDX-License-Identifier: MIT
#include "forward/dense/mixers/mixer.h"

#include <variant>

#include "forward/dense/mixers/attention_mixer.h"
#include "forward/dense/mixers/delta_net_mixer.h"
#include "forward/dense/mixers/latent_attention_mixer.h"
#include "forward/dense/mixers/mamba2_mixer.h"
#include "forward/dense/mixers/short_conv_mixer.h"

namespace moestro {

Result<std::unique_ptr<Mixer>> MakeMixer(const MixerParts& parts, const MixerSpec& spec,
                                         const MakeStateMixer& make_state) {
  if (const auto* attention = std::get_if<AttentionSpec>(&spec)) {
    return MakeAttentionMixer(parts, *attention);
  }
  if (const auto* latent = std::get_if<LatentAttentionSpec>(&spec)) {
    return MakeLatentAttentionMixer(parts, *latent);
  }
  if (parts.device != nullptr) {
    return Fail(Errc::kDevice, "layers with a state are computed in memory");
  }
  if (const auto* delta = std::get_if<DeltaNetSpec>(&spec)) return MakeDeltaNetMixer(parts, *delta);
  if (const auto* conv = std::get_if<ShortConvSpec>(&spec)) return MakeShortConvMixer(parts, *conv);
  if (const auto* mamba = std::get_if<Mamba2Spec>(&spec)) return MakeMamba2Mixer(parts, *mamba);
  const auto& state = std::get<StateSpec>(spec);
  if (!make_state) return Fail(Errc::kUnsupported, "no mixer computes '{}'", state.kind);
  return make_state(parts, state);
}

}  // namespace moestro
