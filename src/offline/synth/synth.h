// SPDX-License-Identifier: MIT
// Writes a GGUF file with the shape of a real model and weights without training: the same sizes,
// reads and arithmetic, to measure a machine before a download of 20 GB. The name and the key
// `moestro.synthetic` mark the file. Answers mean nothing, and routing is that of random weights:
// more even than a trained model's unless `skew` is set (synth_weights.h).
//
// The same options give the same bytes. One thread; memory of some 100 MiB whatever the size.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"
#include "offline/synth/synth_shapes.h"

namespace moestro {

// Models of up to this many weights are random throughout; larger ones repeat a random block.
inline constexpr uint64_t kRandomThroughout = uint64_t{64} << 20;

struct SynthOptions {
  SynthShape shape;
  std::string type = "Q4_K_M";  // a name of SchemeNames()
  OutputPath path;              // of the GGUF; shards get llama.cpp's -00001-of-0000N before .gguf
  std::string vocab_path;       // GGUF whose vocabulary is copied, setting shape.vocab; "": none
  uint64_t seed = 1;
  double skew = 0;  // Zipf exponent of expert popularity; 0: even
  uint32_t shards = 1;
  bool is_tied = false;   // no output matrix, token_embd serves twice: llama, qwen3moe
  bool is_damped = true;  // routing even at every depth, see ShapeChoices
  // Routed experts are holes: a file of hundreds of gigabytes takes the disk space of its other
  // tensors, and the experts' weights are zeros.
  bool is_sparse = false;
  bool overwrite = false;  // replace existing files
  uint64_t random_throughout = kRandomThroughout;
  std::function<void(uint64_t done_bytes, uint64_t all_bytes)> progress;  // may be empty
};

struct SynthReport {
  std::vector<std::string> paths;  // the files, first shard first
  uint64_t bytes = 0;              // of all files
  uint64_t expert_bytes = 0;       // of `bytes`: routed experts
  uint64_t weights = 0;
  uint32_t vocab = 0;
};

// The report of WriteSynthetic(), without writing. Fails as WriteSynthetic() does on bad options.
Result<SynthReport> PlanSynthetic(const SynthOptions& options);

// Either all files have their names when this returns, or none exists. Fails with kUsage or
// kInvalidRequest on options that cannot work, kInvalidFile on a bad vocabulary, kIo when a file
// exists already, or the disk is too small or fails.
Result<SynthReport> WriteSynthetic(const SynthOptions& options);

}  // namespace moestro
