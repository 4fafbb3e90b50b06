// SPDX-License-Identifier: MIT
#include "native/find_weights.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "compute/host_memory.h"
#include "learned/kept_facts.h"
#include "model/gguf_file.h"
#include "model/read_spec.h"
#include "model/weights_id.h"
#include "store/block_reader.h"
#include "store/read_queue.h"

namespace moestro {
namespace {

// Reads under way at a time. Reads are small and scattered over the file, so several keep a disk
// busy.
constexpr unsigned kReadsAtATime = 32;

Result<uint64_t> SumOf(const std::vector<std::string>& paths, std::span<const WeightBlock> blocks) {
  if (blocks.empty()) return 0;
  TRY(const std::unique_ptr<BlockReader> reader, OpenReader({}, paths));
  uint64_t window = 0;
  for (const WeightBlock& block : blocks) {
    window = std::max(window, WindowCapacity(block.from.length, reader->block()));
  }
  const size_t n_windows = std::min<size_t>(blocks.size(), kReadsAtATime);
  TRY(const HostMemory memory, HostMemory::Allocate(n_windows * window));
  ReadQueue queue(*reader, paths,
                  {.max_request = window, .max_in_flight = kReadsAtATime, .max_speculative = 1});
  uint64_t sum = 0;
  std::vector<size_t> in_window(n_windows);  // [window]: the block that is read into the window
  std::vector<ExtentDone> done;
  const auto landing = [&](size_t w) { return memory.bytes().subspan(w * window, window); };
  size_t next = 0;
  const auto start = [&](size_t w) {
    in_window[w] = next;
    queue.Enqueue({.from = blocks[next++].from, .landing = landing(w), .tag = w});
  };
  for (size_t w = 0; w < n_windows; ++w) start(w);
  while (!queue.idle()) {
    done.clear();
    queue.Wait(done);
    for (ExtentDone& read : done) {
      if (read.error) return std::unexpected(*std::move(read.error));
      const WeightBlock& block = blocks[in_window[read.tag]];
      const uint64_t residue = CoveringWindow(block.from, reader->block()).residue;
      sum += HashBlock(landing(read.tag).subspan(residue, block.from.length), block.seed);
      if (next < blocks.size()) start(read.tag);
    }
  }
  return sum;
}

// The key of the files as they were opened. nullopt: a file has changed since then, or cannot be
// examined.
std::optional<WeightsKey> KeyOf(const char* what, const GgufFile& file) {
  WeightsKey key{.what = what, .header = Fingerprint(file), .files = {}};
  for (size_t i = 0; i < file.paths().size(); ++i) {
    const Result<FileVersion> version = FileVersion::Of(file.paths()[i]);
    if (!version || version->stamp != file.stamps()[i]) return std::nullopt;
    key.files.push_back(*version);
  }
  return key;
}

constexpr const char* kModelKind = "model";
constexpr const char* kLowKind = "low copies";

// The number from the folder; else from the weights, whose sum `sum` reads and returns.
Result<uint64_t> Remembered(const char* what, const GgufFile& file, const std::string& folder,
                            auto&& sum) {
  const std::optional<WeightsKey> before = KeyOf(what, file);
  if (before) {
    if (const auto kept = KeptWeights(folder, *before)) return *kept;
    TRY(const uint64_t all, sum());
    if (KeyOf(what, file) == before) {
      const uint64_t id = WeightsId(before->header, all);
      KeepWeights(folder, *before, id);
      return id;
    }
  }
  return Fail(Errc::kInvalidFile,
              "{} has changed since it was opened; start again, and leave it alone meanwhile",
              file.paths().front());
}

}  // namespace

std::optional<uint64_t> KnownWeightsId(const ModelFile& model, const std::string& folder) {
  if (folder.empty()) return std::nullopt;
  const std::optional<WeightsKey> key = KeyOf(kModelKind, model.gguf);
  return key ? KeptWeights(folder, *key) : std::nullopt;
}

namespace {

// The number of a model that is open with its layer that predicts further tokens: that of the model
// without it, so that the files beside the model are the same for both.
Result<uint64_t> FindMainWeightsId(const ModelFile& model, const std::string& folder) {
  return Remembered(kModelKind, model.gguf, folder, [&]() -> Result<uint64_t> {
    TRY(const ModelSpec spec, ReadSpec(model.gguf));
    TRY(const ModelWeights weights, ReadWeights(model.gguf, spec));
    TRY(const uint64_t dense, SumOf(model.gguf.paths(), DenseBlocks(weights)));
    TRY(const uint64_t experts, SumOf(model.gguf.paths(), ExpertBlocks(weights)));
    return dense + experts;
  });
}

}  // namespace

Result<uint64_t> FindWeightsId(const ModelFile& model, const std::string& folder,
                               std::optional<uint64_t> dense) {
  if (model.spec.predicts()) return FindMainWeightsId(model, folder);
  return Remembered(kModelKind, model.gguf, folder, [&]() -> Result<uint64_t> {
    if (!dense) {
      TRY(dense, SumOf(model.gguf.paths(), DenseBlocks(model.weights)));
    }
    TRY(const uint64_t experts, SumOf(model.gguf.paths(), ExpertBlocks(model.weights)));
    return *dense + experts;
  });
}

Result<uint64_t> FindWeightsId(const LowCopies& low, const std::string& folder) {
  return Remembered(kLowKind, low.gguf, folder,
                    [&] { return SumOf(low.gguf.paths(), ExpertBlocks(low)); });
}

}  // namespace moestro
