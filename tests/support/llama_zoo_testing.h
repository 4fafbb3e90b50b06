// SPDX-License-Identifier: MIT
// Tiny models of every architecture with experts that libllama can make by itself: it names and
// shapes the tensors, weights are random and seeded. No tokenizer unless asked for: 256 token
// numbers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace moestro {

struct ZooSize {
  uint32_t experts = 8;
  uint32_t expert_ff = 64;  // width of an expert; 128 values go in
  uint32_t context = 256;   // positions that the model was trained with
  uint32_t taps = 3;        // of a short convolution
  bool is_causal = true;    // a token sees those before it alone
  uint32_t pooling = 0;     // libllama's number of a way to embeddings; 0: none is named
  int32_t whole_every = 2;  // each so many-th layer of gemma-embedding has no window
  // libllama's number of a quantised file type (llama_ftype); 0: as it is made, in F32.
  int file_type = 0;
  std::string vocab_path = {};  // GGUF with a tokenizer to copy
};

// Those that write text; docs/hosted.md lists the others with the reason. WriteZooModel() also
// makes diffusion models: llada-moe and rnd1.
std::vector<std::string> ZooArchs();
// The kind of memory that libllama has of earlier tokens: MixersOf() of a family of ours.
std::string ZooMemory(const std::string& arch);

// Whether a layer keeps a state, which cannot be cut back.
bool ZooHasStates(const std::string& arch);

// For the name of a test with a parameter: letters and digits alone.
inline std::string ZooCaseName(std::string arch, int64_t number) {
  for (char& c : arch) c = c == '-' || c == '_' ? 'X' : c;
  return arch + std::to_string(number);
}

// Writes the model into `dir` and returns its path. Stops the test program when that fails.
std::string WriteZooModel(const std::filesystem::path& dir, std::string_view arch,
                          const ZooSize& size = {});

}  // namespace moestro
