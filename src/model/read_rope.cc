// SPDX-License-Identifier: MIT
#include "model/read_rope.h"

#include <cmath>
#include <string>

#include "base/printable.h"

namespace moestro {
namespace {

Status ReadRopeScaling(const MetaKeys& keys, RopeSpec& rope) {
  TRY(const auto type, keys.file().FindString(keys.Full("rope.scaling.type")));
  const std::string scaling = type.value_or("linear");
  if (scaling != "none" && scaling != "linear" && scaling != "yarn" && scaling != "longrope") {
    return Fail(Errc::kUnsupported, "{}: {} is '{}'; supported are none, linear, yarn, longrope",
                keys.path(), keys.Full("rope.scaling.type"), Printable(scaling));
  }
  TRY(auto factor, keys.FindFactor("rope.scaling.factor"));
  if (!factor) {
    TRY(factor, keys.FindFactor("rope.scale_linear"));  // the name old converters wrote
  }
  if (factor && *factor > 0.0F && scaling != "none") rope.freq_scale = 1.0F / *factor;
  if (!std::isfinite(rope.freq_scale)) {
    return Fail(Errc::kInvalidFile, "{}: {} is {}, too small", keys.path(),
                keys.Full("rope.scaling.factor"), *factor);
  }
  if (scaling == "yarn") rope.ext_factor = 1.0F;
  // A further factor: ggml's YaRN multiplies the magnitude by 1 + 0.1 ln(factor) in any case.
  TRY(const auto attn_factor, keys.FindFactor("rope.scaling.attn_factor"));
  rope.attn_factor = attn_factor.value_or(1.0F);
  return {};
}

}  // namespace

Result<float> ReadRopeBase(const MetaKeys& keys, std::string_view key, float fallback) {
  TRY(const auto base, keys.FindFactor(key));
  if (base.value_or(fallback) > 0.0F) return base.value_or(fallback);
  return Fail(Errc::kInvalidFile, "{}: {} is {}, expected more than 0", keys.path(), keys.Full(key),
              *base);
}

Result<RopeSpec> ReadRope(const MetaKeys& keys, uint32_t head_dim, uint32_t n_ctx_train) {
  RopeSpec rope;
  TRY(rope.n_dims, keys.CountOr("rope.dimension_count", {2, head_dim}, head_dim));
  if (rope.n_dims % 2 != 0) {
    return Fail(Errc::kInvalidFile, "{}: {} is {}, expected an even number", keys.path(),
                keys.Full("rope.dimension_count"), rope.n_dims);
  }
  TRY(rope.freq_base, ReadRopeBase(keys, "rope.freq_base", 10000.0F));
  TRY(rope.original_context, keys.CountOr("rope.scaling.original_context_length",
                                          {1, MetaKeys::kMaxContext}, n_ctx_train));
  TRY_STATUS(ReadRopeScaling(keys, rope));
  return rope;
}

}  // namespace moestro
