// SPDX-License-Identifier: MIT
#include "offline/synth/synth.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "base/number.h"
#include "base/output_file.h"
#include "base/text.h"
#include "offline/gguf_output.h"
#include "offline/synth/synth_metadata.h"
#include "offline/synth/synth_plan.h"
#include "offline/synth/synth_weights.h"

namespace moestro {
namespace {

// In a tiled model, matrices of at most this many weights are still random throughout: drawing and
// quantising takes some 30 ms per million weights.
constexpr uint64_t kTileAbove = uint64_t{1} << 18;
constexpr uint32_t kMaxShards = 512;

struct GgufShard {
  OutputPath path;
  std::span<const PlannedTensor> tensors;
  std::vector<std::byte> header;
};

// Plan of the output, complete before the first byte is written.
struct Job {
  SynthShape shape;
  std::vector<PlannedTensor> tensors;
  std::vector<GgufShard> shards;  // views of `tensors`
  SynthReport report;
};

uint64_t Padded(uint64_t bytes) { return AlignUp(bytes, GGUF_DEFAULT_ALIGNMENT); }

// llama.cpp's names: model-00001-of-00003.gguf.
OutputPath ShardPath(const OutputPath& output, uint32_t index, uint32_t count) {
  if (count == 1) return output;
  constexpr std::string_view kSuffix = ".gguf";
  const std::string& path = output.text();
  const std::string stem =
      path.ends_with(kSuffix) ? path.substr(0, path.size() - kSuffix.size()) : path;
  return output.Beside(Format("{}-{:05}-of-{:05}{}", stem, index + 1, count, kSuffix));
}

bool IsTied(const SynthOptions& options) { return options.is_tied || options.shape.is_tied; }

Status CheckOptions(const SynthOptions& options) {
  if (options.path.empty()) return Fail(Errc::kUsage, "no output file named");
  if (!(options.skew >= 0 && options.skew <= 8)) {
    return Fail(Errc::kInvalidRequest, "skew {} is outside 0 to 8", options.skew);
  }
  if (options.skew > 0 && 2 * options.shape.used >= options.shape.experts) {
    return Fail(Errc::kInvalidRequest,
                "a skew needs fewer than half of the experts in use, not {} of {}",
                options.shape.used, options.shape.experts);
  }
  const std::string& arch = options.shape.arch;
  TRY_STATUS(CheckShape(options.shape));
  if (!IsTied(options) || FindSynthFamily(arch)->written.can_be_tied) return {};
  return Fail(Errc::kInvalidRequest, "{} always has an output matrix of its own", arch);
}

// Consecutive runs of about equal bytes, none empty.
std::vector<std::span<const PlannedTensor>> Distribute(std::span<const PlannedTensor> tensors,
                                                       uint32_t shards) {
  uint64_t all = 0;
  for (const PlannedTensor& tensor : tensors) all += tensor.bytes();
  std::vector<std::span<const PlannedTensor>> parts;
  uint64_t placed = 0;
  size_t next = 0;
  for (uint32_t shard = 0; shard < shards; ++shard) {
    const size_t first = next;
    // Leaves one tensor for each later shard.
    const size_t last = tensors.size() - (shards - shard - 1);
    const uint64_t target = all / shards * (shard + 1);
    do {
      placed += tensors[next++].bytes();
    } while (next < last && (shard + 1 == shards || placed < target));
    parts.push_back(tensors.subspan(first, next - first));
  }
  return parts;
}

std::vector<std::byte> ShardHeader(const Job& job, const SynthOptions& options,
                                   const WeightScheme& scheme, const Vocabulary* vocabulary,
                                   uint32_t index) {
  const gguf_context_ptr gguf = NewGguf();
  if (index == 0) {
    SetModelKeys(gguf.get(), job.shape, scheme, options.seed);
    if (options.is_sparse) SetSparseKey(gguf.get());
    if (vocabulary != nullptr) {
      gguf_set_kv(gguf.get(), vocabulary->keys.get());
    } else {
      SetNoVocabulary(gguf.get());
    }
  }
  SetSplitKeys(gguf.get(),
               {.index = index, .count = options.shards, .all_tensors = job.tensors.size()});
  for (const PlannedTensor& tensor : job.shards[index].tensors) {
    AddTensor(gguf.get(), tensor.name, tensor.type,
              std::span(tensor.ne).first(static_cast<size_t>(tensor.dims)));
  }
  return HeaderBytes(gguf.get());
}

bool IsOfExperts(const PlannedTensor& tensor) { return tensor.name.ends_with("_exps.weight"); }

// Holes of sparse files: experts, and tables that are read row by row.
bool IsHole(const PlannedTensor& tensor) {
  return IsOfExperts(tensor) || tensor.name == "per_layer_token_embd.weight";
}

void FillReport(Job& job) {
  job.report.vocab = job.shape.vocab;
  for (const GgufShard& shard : job.shards) {
    job.report.paths.push_back(shard.path.text());
    job.report.bytes += shard.header.size();
    for (const PlannedTensor& tensor : shard.tensors) {
      job.report.bytes += Padded(tensor.bytes());
      job.report.weights += tensor.weights();
      if (IsOfExperts(tensor)) job.report.expert_bytes += tensor.bytes();
    }
  }
}

Result<Job> Prepare(const SynthOptions& options) {
  TRY(const WeightScheme scheme, FindScheme(options.type));
  Job job{.shape = options.shape, .tensors = {}, .shards = {}, .report = {}};
  std::optional<Vocabulary> vocabulary;
  if (!options.vocab_path.empty()) {
    TRY(vocabulary, ReadVocabulary(options.vocab_path));
    job.shape.vocab = vocabulary->size;
  }
  SynthOptions checked = options;
  checked.shape = job.shape;
  TRY_STATUS(CheckOptions(checked));
  job.tensors =
      PlanTensors(job.shape, scheme, {.is_tied = IsTied(options), .is_damped = options.is_damped});
  const auto most = std::min(kMaxShards, static_cast<uint32_t>(job.tensors.size()));
  if (options.shards < 1 || options.shards > most) {
    return Fail(Errc::kInvalidRequest, "{} shards are outside 1 to {}", options.shards, most);
  }
  OutputPath output = options.path;
  output.Spare(options.vocab_path);
  for (const auto part : Distribute(job.tensors, options.shards)) {
    const auto index = static_cast<uint32_t>(job.shards.size());
    job.shards.push_back({ShardPath(output, index, options.shards), part, {}});
    job.shards.back().header =
        ShardHeader(job, options, scheme, vocabulary ? &*vocabulary : nullptr, index);
  }
  // Links may lead from one part to another.
  for (GgufShard& shard : job.shards) {
    for (const GgufShard& other : job.shards) {
      if (&other != &shard) shard.path.Spare(other.path.text(), OutputPath::Use::kWritten);
    }
  }
  FillReport(job);
  return job;
}

Status CheckDisk(const Job& job, const SynthOptions& options) {
  for (const GgufShard& shard : job.shards) {
    TRY_STATUS(CheckMayWrite(shard.path, options.overwrite));
  }
  uint64_t holes = 0;
  for (const GgufShard& shard : job.shards) {
    for (const PlannedTensor& tensor : shard.tensors) {
      if (options.is_sparse && IsHole(tensor)) holes += tensor.bytes();
    }
  }
  return CheckRoom(job.shards.front().path, job.report.bytes - holes);
}

class WriteProgress {
 public:
  WriteProgress(const SynthOptions& options, uint64_t all) : options_(options), all_(all) {}
  void Add(uint64_t bytes) {
    done_ += bytes;
    if (options_.progress) options_.progress(done_, all_);
  }

 private:
  const SynthOptions& options_;
  uint64_t all_;
  uint64_t done_ = 0;
};

Status WriteGgufShard(const GgufShard& shard, bool is_sparse, SynthWeights& weights,
                      OutputFile& file, WriteProgress& progress) {
  const auto append = [&](std::span<const std::byte> bytes) -> Status {
    TRY_STATUS(file.Write(bytes));
    progress.Add(bytes.size());
    return {};
  };
  TRY_STATUS(append(shard.header));
  for (const PlannedTensor& tensor : shard.tensors) {
    if (is_sparse && IsHole(tensor)) {
      TRY_STATUS(file.Skip(tensor.bytes()));
      progress.Add(tensor.bytes());
    } else {
      TRY_STATUS(weights.Generate(tensor, append));
    }
    TRY_STATUS(PadTo(file, GGUF_DEFAULT_ALIGNMENT));
    progress.Add(Padded(tensor.bytes()) - tensor.bytes());
  }
  return {};
}

}  // namespace

Result<SynthReport> PlanSynthetic(const SynthOptions& options) {
  TRY(Job job, Prepare(options));
  return std::move(job.report);
}

Result<SynthReport> WriteSynthetic(const SynthOptions& options) {
  TRY(Job job, Prepare(options));
  TRY_STATUS(CheckDisk(job, options));
  const bool is_tiled = job.report.weights > options.random_throughout;
  SynthWeights weights({.seed = options.seed,
                        .skew = options.skew,
                        .used = job.shape.used,
                        .experts = job.shape.experts,
                        .tile_above = is_tiled ? kTileAbove : 0});
  WriteProgress progress(options, job.report.bytes);
  std::vector<OutputFile> files;
  for (const GgufShard& shard : job.shards) {
    TRY(OutputFile file, OutputFile::Create(shard.path));
    files.push_back(std::move(file));
    TRY_STATUS(WriteGgufShard(shard, options.is_sparse, weights, files.back(), progress));
  }
  for (OutputFile& file : files) TRY_STATUS(file.Publish());
  for (OutputFile& file : files) file.Keep();
  return std::move(job.report);
}

}  // namespace moestro
