// SPDX-License-Identifier: MIT
// The loops of our own kernels: a tile of rows (one per lane) against a tile of tokens. A block of
// weights is unpacked once per tile of tokens; one token is the same code with a tile of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "compute/expert_kernel.h"
#include "compute/kernels/formats256.h"
#include "compute/kernels/formats256_low.h"
#include "compute/kernels/formats32.h"
#include "compute/kernels/formats_grid.h"
#include "compute/kernels/formats_grid_wide.h"
#include "compute/kernels/isa.h"
#include "compute/kernels/rows.h"

namespace moestro {

// Weights in a block.
template <class Format>
inline constexpr int64_t kBlock = sizeof(Format::Activation::values);

// A tile's rows. Source: Rows<V> or InterleavedRows<V>.
template <class V, class Source>
struct TileRows {
  Source rows;
  int64_t first[V::kQuads];  // index in `out` of each quad's four results
};

struct TileTokens {
  const std::byte* const* activations;
  float* const* out;
  int64_t n_blocks;
};

template <class V, int... kQuad>
inline void StoreQuads(float* out, const int64_t* first, typename V::Float sums,
                       std::integer_sequence<int, kQuad...>) {
  (V::template StoreQuad<kQuad>(out + first[kQuad], sums), ...);
}

// Multiplies one tile. Everything is inlined, or the sums would not live in registers.
template <class V, class Format, class Source, int kTokens>
[[gnu::flatten]] void MultiplyTile(const TileRows<V, Source>& tile, const TileTokens& call,
                                   CacheWarmer<V>& warmer) {
  using Activation = typename Format::Activation;
  const Activation* tokens[kTokens];
  typename V::Float sums[kTokens];
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) {
    tokens[t] = reinterpret_cast<const Activation*>(call.activations[t]);
    sums[t] = V::Zero();
  }
  Source rows = tile.rows;
  rows.warmer = &warmer;
  for (int64_t b = 0; b < call.n_blocks; ++b) {
    Format::template Block<V, kTokens>(rows, tokens, sums);
    rows.Advance(Format::kBytes);
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) ++tokens[t];
  }
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) {
    StoreQuads<V>(call.out[t], tile.first, sums[t], std::make_integer_sequence<int, V::kQuads>());
  }
}

// Multiplies all tokens with one tile of rows, in tiles of tokens as equal as possible.
template <class V, class Format, class Source, int... kTokens>
inline void MultiplyTokens(const TileRows<V, Source>& tile, TileTokens call, int64_t n_tokens,
                           CacheWarmer<V>& warmer, std::integer_sequence<int, kTokens...>) {
  using Multiply = void (*)(const TileRows<V, Source>&, const TileTokens&, CacheWarmer<V>&);
  static constexpr Multiply kMultiply[] = {MultiplyTile<V, Format, Source, kTokens + 1>...};
  constexpr int64_t kMax = sizeof...(kTokens);
  const int64_t n_tiles = (n_tokens + kMax - 1) / kMax;
  for (int64_t i = 0, done = 0; i < n_tiles; ++i) {
    const int64_t count = (n_tokens - done + n_tiles - i - 1) / (n_tiles - i);
    kMultiply[count - 1](tile, call, warmer);
    call.activations += count;
    call.out += count;
    done += count;
  }
}

// Multiplies fewer than four rows, which do not fill a quad, one by one: a row is in all lanes.
template <class V, class Format>
void MultiplyFewRows(const ExpertKernel& self, const ExpertKernel::Call& call, int64_t begin) {
  constexpr int kMax = Format::template kMaxTokens<V>;
  CacheWarmer<V> warmer;
  TileRows<V, Rows<V>> tile{};
  tile.rows.grid = self.grid;
  for (int64_t r = begin; r < call.n_rows; ++r) {
    for (const std::byte*& quad : tile.rows.quad) {
      quad = call.rows + static_cast<size_t>(r) * call.row_bytes;
    }
    for (int64_t t = 0; t < call.n_tokens; t += kMax) {
      const int64_t count = call.n_tokens - t < kMax ? call.n_tokens - t : kMax;
      float lanes[kMax][4];
      float* out[kMax];
      for (int64_t i = 0; i < count; ++i) out[i] = lanes[i];
      MultiplyTokens<V, Format>(tile, {call.activations + t, out, call.n_in / kBlock<Format>},
                                count, warmer, std::make_integer_sequence<int, kMax>());
      for (int64_t i = 0; i < count; ++i) call.out[t + i][r] = lanes[i][0];
    }
  }
}

// Multiplies rows [begin, n_rows) in the layout of the file.
template <class V, class Format>
void MultiplySideBySide(const ExpertKernel& self, const ExpertKernel::Call& call, int64_t begin) {
  if (call.n_rows - begin < 4) return MultiplyFewRows<V, Format>(self, call, begin);
  constexpr int64_t kRows = 4 * V::kQuads;
  const size_t tile_bytes = kRows * call.row_bytes;
  TileRows<V, Rows<V>> tile;
  tile.rows.stride = call.row_bytes;
  tile.rows.grid = self.grid;
  for (int64_t r = begin; r < call.n_rows; r += kRows) {
    // The last quads step back onto rows that are done already, and write equal results again.
    for (int q = 0; q < V::kQuads; ++q) {
      const int64_t wanted = r + 4 * q;
      tile.first[q] = wanted < call.n_rows - 4 ? wanted : call.n_rows - 4;
      tile.rows.quad[q] = call.rows + static_cast<size_t>(tile.first[q]) * call.row_bytes;
    }
    const size_t ahead = static_cast<size_t>(r) * call.row_bytes + LookAhead<V>(tile_bytes);
    CacheWarmer<V> warmer(call, ahead, tile_bytes);
    MultiplyTokens<V, Format>(tile, {call.activations, call.out, call.n_in / kBlock<Format>},
                              call.n_tokens, warmer,
                              std::make_integer_sequence<int, Format::template kMaxTokens<V>>());
  }
}

// ExpertKernel::multiply.
template <class V, class Format>
void MultiplyRows(const ExpertKernel& self, const ExpertKernel::Call& call) {
  if (!call.is_interleaved) return MultiplySideBySide<V, Format>(self, call, 0);
  constexpr int64_t kRows = 4 * V::kQuads;
  const size_t tile_bytes = kRows * call.row_bytes;
  int64_t r = 0;
  for (; r + kRows <= call.n_rows; r += kRows) {
    TileRows<V, InterleavedRows<V>> tile;
    tile.rows.grid = self.grid;
    tile.rows.at = call.rows + static_cast<size_t>(r) * call.row_bytes;
    for (int q = 0; q < V::kQuads; ++q) tile.first[q] = r + 4 * q;
    const size_t ahead = static_cast<size_t>(r) * call.row_bytes + LookAhead<V>(tile_bytes);
    CacheWarmer<V> warmer(call, ahead, tile_bytes);
    MultiplyTokens<V, Format>(tile, {call.activations, call.out, call.n_in / kBlock<Format>},
                              call.n_tokens, warmer,
                              std::make_integer_sequence<int, Format::template kMaxTokens<V>>());
  }
  if (r < call.n_rows) MultiplySideBySide<V, Format>(self, call, r);
}

template <class V, class Format>
inline constexpr ExpertFunctions kFunctions = {
    Format::template kQuantise<V>,       MultiplyRows<V, Format>,
    InterleaveRows<V, Format>,           kBlock<Format>,
    sizeof(typename Format::Activation), V::kSignedOffset != 0};

// nullptr for a type without a format.
template <class V>
const ExpertFunctions* FindFunctions32(ggml_type type) {
  switch (type) {
    case GGML_TYPE_Q4_0:
      return &kFunctions<V, FormatQ4_0>;
    case GGML_TYPE_Q4_1:
      return &kFunctions<V, FormatQ4_1>;
    case GGML_TYPE_Q5_0:
      return &kFunctions<V, FormatQ5_0>;
    case GGML_TYPE_Q5_1:
      return &kFunctions<V, FormatQ5_1>;
    case GGML_TYPE_Q8_0:
      return &kFunctions<V, FormatQ8_0>;
    case GGML_TYPE_IQ4_NL:
      return &kFunctions<V, FormatIQ4_NL>;
    case GGML_TYPE_MXFP4:
      return &kFunctions<V, FormatMXFP4>;
    default:
      return nullptr;
  }
}

template <class V>
const ExpertFunctions* FindFunctions256(ggml_type type) {
  switch (type) {
    case GGML_TYPE_Q2_K:
      return &kFunctions<V, FormatQ2_K>;
    case GGML_TYPE_Q3_K:
      return &kFunctions<V, FormatQ3_K>;
    case GGML_TYPE_Q4_K:
      return &kFunctions<V, FormatQ4_K>;
    case GGML_TYPE_Q5_K:
      return &kFunctions<V, FormatQ5_K>;
    case GGML_TYPE_Q6_K:
      return &kFunctions<V, FormatQ6_K>;
    case GGML_TYPE_IQ4_XS:
      return &kFunctions<V, FormatIQ4_XS>;
    default:
      return nullptr;
  }
}

template <class V>
const ExpertFunctions* FindFunctionsGrid(ggml_type type) {
  switch (type) {
    case GGML_TYPE_IQ2_XXS:
      return &kFunctions<V, FormatIQ2_XXS>;
    case GGML_TYPE_IQ2_XS:
      return &kFunctions<V, FormatIQ2_XS>;
    case GGML_TYPE_IQ2_S:
      return &kFunctions<V, FormatIQ2_S>;
    case GGML_TYPE_IQ3_XXS:
      return &kFunctions<V, FormatIQ3_XXS>;
    case GGML_TYPE_IQ3_S:
      return &kFunctions<V, FormatIQ3_S>;
    default:
      return nullptr;
  }
}

// Finds the functions of a type among all formats; nullptr for a type without a format.
template <class V>
const ExpertFunctions* FindFunctions(ggml_type type) {
  const ExpertFunctions* found = FindFunctions32<V>(type);
  if (found == nullptr) found = FindFunctions256<V>(type);
  return found != nullptr ? found : FindFunctionsGrid<V>(type);
}

}  // namespace moestro
