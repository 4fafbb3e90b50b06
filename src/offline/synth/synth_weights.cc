// SPDX-License-Identifier: MIT
#include "offline/synth/synth_weights.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/hash.h"
#include "base/text.h"

namespace moestro {
namespace {

constexpr int64_t kBlockWeights = int64_t{4} << 20;  // one tiled block
constexpr int64_t kDrawWeights = int64_t{1} << 18;   // drawn and quantised at a time
constexpr double kMostPopular = 0.45;

// The x that a standard normal number exceeds with probability p, by bisection.
double UpperQuantile(double p) {
  double low = -40;
  double high = 40;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(middle / std::sqrt(2.0)) > p ? low : high) = middle;
  }
  return low;
}

// Share of tokens that choose the expert of each rank: (r+1)^-skew, summing to `used`, none above
// the cap.
std::vector<double> RankShares(uint32_t experts, uint32_t used, double skew) {
  std::vector<double> shares(experts);
  for (size_t r = 0; r < shares.size(); ++r)
    shares[r] = std::pow(static_cast<double>(r + 1), -skew);
  size_t capped = 0;  // ranks at the cap; the shares fall, so they are the first ones
  while (true) {
    const double rest =
        std::accumulate(shares.begin() + static_cast<ptrdiff_t>(capped), shares.end(), 0.0);
    const double left = used - kMostPopular * static_cast<double>(capped);
    for (size_t r = capped; r < shares.size(); ++r) shares[r] *= left / rest;
    if (capped == shares.size() || shares[capped] <= kMostPopular) return shares;
    while (capped < shares.size() && shares[capped] > kMostPopular) shares[capped++] = kMostPopular;
  }
}

// Long factors stretch slow pairs most, as trained long-context models do.
float RopeFactor(Fill fill, int64_t pair, int64_t pairs) {
  const float along = static_cast<float>(pair) / static_cast<float>(pairs);
  if (fill == Fill::kRopePart) return along < 0.25F ? 1.0F : 1e30F;
  return fill == Fill::kRopeShort ? 1.0F + 0.2F * along : std::exp(4.0F * along);
}

void FillRows(const PlannedTensor& tensor, SynthRng& rng, std::span<const float> scales,
              int64_t first_row, std::span<float> values) {
  const auto width = static_cast<size_t>(tensor.ne[0]);
  for (size_t i = 0; i < values.size(); ++i) {
    switch (tensor.fill) {
      case Fill::kNormal:
        values[i] = tensor.deviation * rng.Normal();
        break;
      case Fill::kNearOne:
        values[i] = 1.0F + tensor.deviation * rng.Normal();
        break;
      case Fill::kRouter:
        values[i] =
            tensor.deviation * rng.Normal() * scales[static_cast<size_t>(first_row) + i / width];
        break;
      case Fill::kRopeShort:
      case Fill::kRopeLong:
      case Fill::kRopePart:
        values[i] = RopeFactor(tensor.fill, static_cast<int64_t>(i), tensor.ne[0]);
        break;
      case Fill::kDecay:
        values[i] = -std::exp(-7.0F * static_cast<float>(i) / static_cast<float>(values.size()));
        break;
      case Fill::kExperts:  // no floats
        break;
      case Fill::kRate:
      case Fill::kMinusRate:
        values[i] = std::exp2(2.0F * static_cast<float>(i) / static_cast<float>(values.size()));
        if (tensor.fill == Fill::kMinusRate) values[i] = -values[i];
        break;
    }
  }
}

}  // namespace

SynthRng::SynthRng(uint64_t seed, std::string_view stream) {
  Fnv1a hash;  // separates the streams
  hash.Add(stream);
  state_ = hash.value() ^ (seed * 0x9e3779b97f4a7c15);
  Next();
}

uint64_t SynthRng::Next() {  // splitmix64
  state_ += 0x9e3779b97f4a7c15;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

float SynthRng::Normal() {
  constexpr float kMean = 2 * 65535.0F;
  constexpr float kDeviation = 37837.226F;  // sqrt(4 * (65536^2 - 1) / 12)
  const uint64_t bits = Next();
  const uint64_t sum =
      (bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) + (bits >> 48);
  return (static_cast<float>(sum) - kMean) / kDeviation;
}

std::vector<float> PopularityScales(uint32_t experts, uint32_t used, double skew, SynthRng rng) {
  std::vector<float> scales(experts, 1.0F);
  if (skew == 0) return scales;
  const std::vector<double> shares = RankShares(experts, used, skew);
  const double threshold = UpperQuantile(static_cast<double>(used) / experts);
  for (size_t r = 0; r < scales.size(); ++r) {
    scales[r] = static_cast<float>(threshold / UpperQuantile(shares[r]));
  }
  for (size_t i = scales.size(); i > 1; --i) std::swap(scales[i - 1], scales[rng.Below(i)]);
  return scales;
}

// Draws the experts of each row: distinct numbers.
Status SynthWeights::DrawExperts(const PlannedTensor& tensor, const Sink& sink) {
  SynthRng rng(settings_.seed, tensor.name);
  std::vector<int32_t> row;
  for (int64_t r = 0; r < tensor.rows(); ++r) {
    row.clear();
    while (row.size() < static_cast<size_t>(tensor.ne[0])) {
      const auto expert = static_cast<int32_t>(rng.Below(settings_.experts));
      if (!std::ranges::contains(row, expert)) row.push_back(expert);
    }
    TRY_STATUS(sink(std::as_bytes(std::span(row))));
  }
  return {};
}

Status SynthWeights::Generate(const PlannedTensor& tensor, const Sink& sink) {
  if (tensor.fill == Fill::kExperts) return DrawExperts(tensor, sink);
  const bool is_large = settings_.tile_above > 0 && tensor.weights() > settings_.tile_above;
  return is_large && tensor.fill == Fill::kNormal ? Tile(tensor, sink) : Draw(tensor, sink);
}

Status SynthWeights::Draw(const PlannedTensor& tensor, const Sink& sink) {
  SynthRng rng(settings_.seed, tensor.name);
  std::vector<float> scales;
  if (tensor.fill == Fill::kRouter) {
    scales = PopularityScales(static_cast<uint32_t>(tensor.ne[1]), settings_.used, settings_.skew,
                              SynthRng(settings_.seed, tensor.name + "/popularity"));
  }
  const int64_t width = tensor.ne[0];
  const int64_t step = std::clamp(kDrawWeights / width, int64_t{1}, tensor.rows());
  std::vector<float> values(static_cast<size_t>(step * width));
  std::vector<std::byte> bytes(ggml_row_size(tensor.type, width) * static_cast<size_t>(step));
  for (int64_t row = 0; row < tensor.rows(); row += step) {
    const int64_t count = std::min(step, tensor.rows() - row);
    const std::span<float> part(values.data(), static_cast<size_t>(count * width));
    FillRows(tensor, rng, scales, row, part);
    const size_t size =
        ggml_quantize_chunk(tensor.type, part.data(), bytes.data(), 0, count, width, nullptr);
    TRY_STATUS(sink(std::span(bytes).first(size)));
  }
  return {};
}

Status SynthWeights::Tile(const PlannedTensor& tensor, const Sink& sink) {
  const std::span<const std::byte> block = BlockFor(tensor);
  const size_t row_bytes = ggml_row_size(tensor.type, tensor.ne[0]);
  const size_t block_rows = block.size() / row_bytes;
  SynthRng rng(settings_.seed, tensor.name);
  uint64_t left = tensor.bytes();
  while (left > 0) {
    const size_t turn = rng.Below(block_rows) * row_bytes;
    for (const auto part : {block.subspan(turn), block.first(turn)}) {
      const size_t size = std::min<uint64_t>(left, part.size());
      if (size > 0) TRY_STATUS(sink(part.first(size)));
      left -= size;
    }
  }
  return {};
}

const std::vector<std::byte>& SynthWeights::BlockFor(const PlannedTensor& tensor) {
  const BlockKey key{static_cast<int>(tensor.type), tensor.ne[0], tensor.deviation};
  const auto [slot, is_new] = blocks_.try_emplace(key);
  if (!is_new) return slot->second;
  PlannedTensor block = tensor;
  block.name = Format("block/{}", tensor.ne[0]);
  block.ne = {tensor.ne[0], std::max(int64_t{1}, kBlockWeights / tensor.ne[0]), 1};
  slot->second.reserve(block.bytes());
  const Status drawn = Draw(block, [&](std::span<const std::byte> bytes) -> Status {
    slot->second.insert(slot->second.end(), bytes.begin(), bytes.end());
    return {};
  });
  static_cast<void>(drawn);  // the sink cannot fail
  return slot->second;
}

}  // namespace moestro
