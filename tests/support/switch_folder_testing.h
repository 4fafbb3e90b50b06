// SPDX-License-Identifier: MIT
// For tests: safetensors files written by hand, and small Switch Transformers folders as Hugging
// Face has them.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moestro {

struct HandTensor {
  std::string name;
  ggml_type type = GGML_TYPE_F32;  // F32, F16 or BF16
  std::vector<int64_t> shape;      // slowest first
  std::vector<float> values;       // exact in all three types; empty: zeros, as a hole of the file
};

// Eight bytes of length and then `json`.
std::string SafetensorsHeader(std::string_view json);
void WriteSafetensors(const std::string& path, std::span<const HandTensor> tensors);

// A piece of spiece.model: text, score, kind as SentencePiece numbers it.
struct HandPiece {
  std::string text;
  float score = 0;
  int kind = 1;
};
// <pad>, </s>, <unk>, a space and letters.
std::vector<HandPiece> HandPieces();
// model: 1 unigram, 2 BPE.
std::string SentencePieceBytes(std::span<const HandPiece> pieces, std::string_view charsmap = "",
                               int model = 1);

// What a folder holds.
struct TinySwitch {
  uint32_t encoder_layers = 2;
  uint32_t decoder_layers = 3;
  uint32_t encoder_step = 1;
  uint32_t decoder_step = 2;
  uint32_t embd = 64;
  uint32_t ff = 96;
  uint32_t heads = 3;
  uint32_t head_dim = 32;
  uint32_t experts = 3;
  uint32_t vocab = 160;
  bool is_tied = true;
  ggml_type type = GGML_TYPE_F32;
  bool has_values = true;  // else all are zeros that take no room on the disk
  uint32_t shards = 1;
};

// All of them, by name, as transformers names them.
std::map<std::string, HandTensor> TinySwitchTensors(const TinySwitch& shape);
std::string TinySwitchConfig(const TinySwitch& shape);
// config.json, weights and spiece.model in `folder`, which is made.
void WriteTinySwitch(const std::string& folder, const TinySwitch& shape);
// The weights alone.
void WriteWeights(const std::string& folder, const std::map<std::string, HandTensor>& tensors,
                  uint32_t shards = 1);

}  // namespace moestro
