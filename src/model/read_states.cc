// SPDX-License-Identifier: MIT
#include "model/read_states.h"

#include <string_view>

namespace moestro {
namespace {

// Upper bounds that no real model comes near. With them a state's values fit in 32 bits.
constexpr uint64_t kMaxStateHeads = 1024;
constexpr uint64_t kMaxStateDim = 1024;
constexpr uint64_t kMaxStateValues = uint64_t{1} << 30;
constexpr uint64_t kMaxInterval = 4096;

// Sizes for which device/state_kernel.h has kernels.
constexpr uint32_t kHeadMultiple = 32;
constexpr uint32_t kChannelMultiple = 16;
constexpr uint32_t kLeastTaps = 2;
constexpr uint32_t kMostTaps = 4;
constexpr MetaKeys::Range kRealTaps = {.min = 1, .max = 4096};  // no real model comes near

Status CheckMultiple(const MetaKeys& keys, std::string_view key, uint32_t value,
                     uint32_t multiple) {
  if (value % multiple == 0) return {};
  return Fail(Errc::kUnsupported, "{}: {} gives {}, no multiple of {}", keys.path(), keys.Full(key),
              value, multiple);
}

Status CheckStateSize(const MetaKeys& keys, uint64_t values) {
  if (values <= kMaxStateValues) return {};
  return Fail(Errc::kUnsupported, "{}: a state of {} values in one layer ({}) is too large",
              keys.path(), values, keys.Full("ssm.state_size"));
}

Result<uint32_t> ReadTaps(const MetaKeys& keys, std::string_view key) {
  TRY(const uint32_t taps, keys.Count(key, kRealTaps));
  if (taps >= kLeastTaps && taps <= kMostTaps) return taps;
  return Fail(Errc::kUnsupported,
              "{}: {} is {}: convolutions over {} to {} positions are supported", keys.path(),
              keys.Full(key), taps, kLeastTaps, kMostTaps);
}

}  // namespace

Result<std::vector<bool>> FindStateLayers(const MetaKeys& keys, uint32_t n_all,
                                          uint32_t n_evaluated) {
  constexpr std::string_view kKey = "attention.recurrent_layers";
  std::vector<bool> has_state;
  if (keys.IsArray(kKey)) {
    TRY(const auto choices, keys.Counts(kKey, {0, 1}, n_all, n_evaluated));
    has_state.assign(choices.begin(), choices.begin() + n_evaluated);
    return has_state;
  }
  TRY(const uint32_t interval, keys.CountOr("full_attention_interval", {1, kMaxInterval}, 4));
  for (uint32_t l = 0; l < n_evaluated; ++l) has_state.push_back((l + 1) % interval != 0);
  return has_state;
}

Result<DeltaNetSpec> ReadDeltaNet(const MetaKeys& keys, const StateRules& rules) {
  DeltaNetSpec delta{.sharing = rules.sharing};
  TRY(delta.n_head_k, keys.Count("ssm.group_count", {1, kMaxStateHeads}));
  TRY(delta.n_head_v, keys.Count("ssm.time_step_rank", {1, kMaxStateHeads}));
  TRY(delta.head_dim, keys.Count("ssm.state_size", {1, kMaxStateDim}));
  TRY(delta.n_taps, ReadTaps(keys, "ssm.conv_kernel"));
  TRY(const uint32_t inner, keys.Count("ssm.inner_size", {1, kMaxStateHeads * kMaxStateDim}));
  if (delta.n_head_v % delta.n_head_k != 0) {
    return Fail(Errc::kInvalidFile, "{}: {} value heads cannot share {} key heads ({})",
                keys.path(), delta.n_head_v, delta.n_head_k, keys.Full("ssm.group_count"));
  }
  if (inner != uint64_t{delta.n_head_v} * delta.head_dim) {
    return Fail(Errc::kInvalidFile, "{}: {} is {}, and {} heads of {} make {}", keys.path(),
                keys.Full("ssm.inner_size"), inner, delta.n_head_v, delta.head_dim,
                uint64_t{delta.n_head_v} * delta.head_dim);
  }
  TRY_STATUS(CheckMultiple(keys, "ssm.state_size", delta.head_dim, kHeadMultiple));
  TRY_STATUS(CheckStateSize(keys, uint64_t{delta.n_head_v} * delta.head_dim * delta.head_dim));
  return delta;
}

Result<DeltaNetSpec> ReadKimiDelta(const MetaKeys& keys, uint32_t n_all) {
  DeltaNetSpec delta{.decays_values = true};
  TRY(const auto heads, keys.Counts("attention.head_count", {1, kMaxStateHeads}, n_all, n_all));
  TRY(delta.head_dim, keys.Count("kda.head_dim", {1, kMaxStateDim}));
  TRY(delta.n_taps, ReadTaps(keys, "ssm.conv_kernel"));
  delta.n_head_k = delta.n_head_v = heads.front();
  TRY_STATUS(CheckMultiple(keys, "kda.head_dim", delta.head_dim, kHeadMultiple));
  TRY_STATUS(CheckStateSize(keys, uint64_t{delta.n_head_v} * delta.head_dim * delta.head_dim));
  return delta;
}

Result<Mamba2Spec> ReadMamba2(const MetaKeys& keys) {
  Mamba2Spec mamba;
  TRY(mamba.n_head, keys.Count("ssm.time_step_rank", {1, kMaxStateHeads}));
  TRY(mamba.n_group, keys.Count("ssm.group_count", {1, mamba.n_head}));
  TRY(mamba.n_state, keys.Count("ssm.state_size", {1, kMaxStateDim}));
  TRY(mamba.n_taps, ReadTaps(keys, "ssm.conv_kernel"));
  TRY(const uint32_t inner, keys.Count("ssm.inner_size", {1, kMaxStateHeads * kMaxStateDim}));
  if (inner % mamba.n_head != 0) {
    return Fail(Errc::kInvalidFile, "{}: {} is {}, which {} heads ({}) cannot share", keys.path(),
                keys.Full("ssm.inner_size"), inner, mamba.n_head, keys.Full("ssm.time_step_rank"));
  }
  mamba.head_dim = inner / mamba.n_head;
  if (mamba.n_head % mamba.n_group != 0) {
    return Fail(Errc::kInvalidFile, "{}: {} heads cannot form {} groups ({})", keys.path(),
                mamba.n_head, mamba.n_group, keys.Full("ssm.group_count"));
  }
  TRY_STATUS(CheckMultiple(keys, "ssm.inner_size", mamba.head_dim, kHeadMultiple));
  TRY_STATUS(CheckMultiple(keys, "ssm.state_size", mamba.n_state, kChannelMultiple));
  TRY_STATUS(CheckStateSize(keys, uint64_t{inner} * mamba.n_state));
  return mamba;
}

Result<ShortConvSpec> ReadShortConv(const MetaKeys& keys, uint32_t n_embd) {
  ShortConvSpec conv{.n_channels = n_embd};
  TRY(conv.n_taps, ReadTaps(keys, "shortconv.l_cache"));
  TRY_STATUS(CheckMultiple(keys, "embedding_length", n_embd, kChannelMultiple));
  return conv;
}

}  // namespace moestro
