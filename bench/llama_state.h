// SPDX-License-Identifier: MIT
// A sequence of llama.cpp's that was never evaluated: the state of one cell, as
// llama_state_seq_get_data() gives it, as a pattern for one of many cells with made-up keys and
// values. The layout is libllama's own and may change: it is followed to the last byte, and what
// does not fit is not guessed at.
#pragma once

#include <ggml.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <vector>

namespace moestro {

class MadeUpState {
 public:
  // For llama_state_seq_set_data(): positions 0 to cells - 1 of sequence `id`, numbers of about
  // N(0, 1). nullopt: `one_cell` has another layout, or keys and values that are not F16.
  static std::optional<std::vector<uint8_t>> Make(std::span<const uint8_t> one_cell, uint32_t cells,
                                                  int32_t id, uint64_t seed) {
    MadeUpState state(one_cell, cells, id, seed);
    if (!state.Copy() || !state.from_.empty()) return std::nullopt;
    return std::move(state.to_);
  }

 private:
  MadeUpState(std::span<const uint8_t> from, uint32_t cells, int32_t id, uint64_t seed)
      : from_(from), cells_(cells), id_(id), random_(seed) {
    table_.resize(kTable);
    for (ggml_fp16_t& number : table_) {
      float sum = -6.0F;
      for (int i = 0; i < 12; ++i) sum += static_cast<float>(random_() >> 40) * 0x1p-24F;
      number = ggml_fp32_to_fp16(sum);
    }
  }

  // Streams of cells; one of them holds the cell.
  bool Copy() {
    uint32_t magic = 0;
    int32_t id = 0;
    uint32_t streams = 0;
    if (!Pass(magic) || !Pass(id) || id != id_ || !Pass(streams)) return false;
    bool is_found = false;
    for (uint32_t s = 0; s < streams; ++s) {
      uint32_t count = 0;
      if (!Take(count) || count > 1 || (count == 1 && is_found)) return false;
      Put(count == 1 ? cells_ : 0);
      if (count == 0) continue;
      is_found = true;
      if (!CopyPositions() || !CopyNumbers()) return false;
    }
    return is_found;
  }

  bool CopyPositions() {
    int32_t position = 0;
    uint32_t sequences = 0;
    int32_t sequence = 0;
    if (!Take(position) || !Take(sequences) || !Take(sequence)) return false;
    if (position != 0 || sequences != 1 || sequence != id_) return false;
    for (uint32_t i = 0; i < cells_; ++i) {
      Put(static_cast<int32_t>(i));
      Put(sequences);
      Put(sequence);
    }
    return true;
  }

  bool CopyNumbers() {
    uint32_t is_transposed = 0;
    uint32_t layers = 0;
    uint64_t flags = 0;  // what some models do to keys and values before they are kept
    if (!Pass(is_transposed) || is_transposed > 1) return false;
    if (!Pass(layers) || !Pass(flags) || flags != 0) return false;
    for (uint32_t i = 0; i < layers; ++i) {
      if (!CopyRows()) return false;
    }
    if (from_.empty()) return true;  // latent attention: the values are part of the keys
    for (uint32_t i = 0; i < layers; ++i) {
      if (!(is_transposed == 1 ? CopyColumns() : CopyRows())) return false;
    }
    return true;
  }
  bool CopyRows() {
    uint64_t bytes = 0;
    return PassType() && Pass(bytes) && Skip(bytes) && MakeUp(bytes);
  }
  bool CopyColumns() {
    uint32_t element = 0;
    uint32_t width = 0;
    if (!PassType() || !Pass(element) || !Pass(width)) return false;
    return Skip(uint64_t{element} * width) && MakeUp(uint64_t{element} * width);
  }
  bool PassType() {
    int32_t type = 0;
    return Pass(type) && type == GGML_TYPE_F16;
  }

  // Numbers of all cells in place of the one's.
  bool MakeUp(uint64_t bytes) {
    for (uint64_t left = bytes * cells_; left > 0;) {
      const size_t first = random_() % (kTable / 2);
      const uint64_t n = std::min<uint64_t>(left, (kTable / 2) * sizeof(ggml_fp16_t));
      const auto* begin = reinterpret_cast<const uint8_t*>(table_.data() + first);
      to_.insert(to_.end(), begin, begin + n);
      left -= n;
    }
    return true;
  }

  template <class T>
  bool Take(T& value) {
    if (from_.size() < sizeof(T)) return false;
    std::memcpy(&value, from_.data(), sizeof(T));
    from_ = from_.subspan(sizeof(T));
    return true;
  }
  template <class T>
  void Put(T value) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    to_.insert(to_.end(), bytes, bytes + sizeof(T));
  }
  template <class T>
  bool Pass(T& value) {
    if (!Take(value)) return false;
    Put(value);
    return true;
  }
  bool Skip(uint64_t bytes) {
    if (from_.size() < bytes) return false;
    from_ = from_.subspan(bytes);
    return true;
  }

  static constexpr size_t kTable = 1U << 16;

  std::span<const uint8_t> from_;  // what is left of it
  uint32_t cells_;
  int32_t id_;
  std::mt19937_64 random_;
  std::vector<ggml_fp16_t> table_;
  std::vector<uint8_t> to_;
};

}  // namespace moestro
